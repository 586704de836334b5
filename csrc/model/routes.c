/* SPDX-License-Identifier: BSD-3-Clause
 * Routes: for each node and class of destinations, the links on shortest paths. */
#include "model/engine.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_MAX (1ull << 28)

/* What building needs and the run does not. */
struct build {
	const struct nupa_model_graph *graph;
	uint32_t nodes;
	uint32_t *out_start, *out; /* links by source */
	uint32_t *in_start, *in;   /* links by target */
	uint32_t *distance, *queue;
	uint32_t *table; /* hash of sets: offsets in routes.sets, 0: free */
	uint32_t table_size, table_used;
	uint32_t *links; /* of one set */
};

/* Counting sort of links by a node of theirs. */
static bool by_node(const struct build *build, const uint32_t *node, uint32_t **start,
		    uint32_t **links)
{
	const uint32_t count = build->graph->links;
	uint32_t *first = nupa_model_array(build->nodes + 2ull, sizeof(*first));
	uint32_t *sorted = nupa_model_array(count, sizeof(*sorted));

	*start = first;
	*links = sorted;
	if (!first || !sorted)
		return false;
	for (uint32_t link = 0; link < count; link++)
		first[node[link] + 2]++;
	for (uint32_t at = 1; at <= build->nodes; at++)
		first[at + 1] += first[at];
	for (uint32_t link = 0; link < count; link++)
		sorted[first[node[link] + 1]++] = link;
	return true;
}

static uint64_t set_hash(const uint32_t *links, uint32_t count)
{
	uint64_t hash = count;

	for (uint32_t at = 0; at < count; at++)
		hash = nupa_model_mix(hash * 31 + links[at] + 1);
	return hash;
}

static bool sets_room(struct routes *routes, uint32_t more)
{
	uint32_t *larger;

	if (routes->sets && routes->sets_used + more <= routes->sets_room)
		return true;
	if (routes->sets_used + (uint64_t)more > UINT32_MAX / 4)
		return false;
	routes->sets_room = (routes->sets_used + more) * 2;
	larger = realloc(routes->sets, (uint64_t)routes->sets_room * sizeof(*larger));
	if (!larger)
		return false;
	routes->sets = larger;
	return true;
}

static bool table_grow(struct build *build, const struct routes *routes)
{
	const uint32_t size = build->table_size ? build->table_size * 2 : 1024;
	uint32_t *table = nupa_model_array(size, sizeof(*table));

	if (!table)
		return false;
	for (uint32_t at = 0; at < build->table_size; at++) {
		const uint32_t set = build->table[at];
		uint32_t to;

		if (!set)
			continue;
		to = (uint32_t)set_hash(routes->sets + set + 1, routes->sets[set]) & (size - 1);
		while (table[to])
			to = (to + 1) & (size - 1);
		table[to] = set;
	}
	free(build->table);
	build->table = table;
	build->table_size = size;
	return true;
}

/* Returns the offset of that set, which is kept once; 0: no memory. */
static uint32_t set_of(struct build *build, struct routes *routes, const uint32_t *links,
		       uint32_t count)
{
	uint32_t at, set;

	if (!sets_room(routes, count + 1) ||
	    (2 * build->table_used >= build->table_size && !table_grow(build, routes)))
		return 0;
	at = (uint32_t)set_hash(links, count) & (build->table_size - 1);
	for (; (set = build->table[at]); at = (at + 1) & (build->table_size - 1))
		if (routes->sets[set] == count &&
		    !memcmp(routes->sets + set + 1, links, count * sizeof(*links)))
			return set;
	set = routes->sets_used;
	routes->sets[set] = count;
	memcpy(routes->sets + set + 1, links, count * sizeof(*links));
	routes->sets_used += count + 1;
	build->table[at] = set;
	build->table_used++;
	return set;
}

/* An endpoint's place among those of its class. */
static bool places_build(struct routes *routes, uint32_t endpoints)
{
	uint32_t *count = nupa_model_array(routes->classes, sizeof(*count));

	routes->place = nupa_model_array(endpoints, sizeof(*routes->place));
	for (uint32_t end = 0; count && routes->place && end < endpoints; end++)
		routes->place[end] = count[routes->class_of[end]]++;
	routes->class_size = count;
	return count && routes->place;
}

/* How many endpoints before this one have the same links on their shortest paths from that node:
 * its subnet manager's table gives each the next link.  NUPA_MODEL_NONE: no memory. */
uint32_t nupa_model_route_number(struct nupa_model_packets *sim, uint32_t node, uint32_t to)
{
	struct routes *routes = &sim->routes;
	const uint32_t *row = routes->row + (uint64_t)node * routes->classes;
	uint32_t *before, *count;

	if (!routes->before)
		routes->before = nupa_model_array(sim->nodes, sizeof(*routes->before));
	if (routes->before && !routes->before[node]) {
		before = nupa_model_array(routes->classes, sizeof(*before));
		count = nupa_model_array(routes->sets_used + ROUTE_FIRST, sizeof(*count));
		for (uint32_t at = 0; before && count && at < routes->classes; at++) {
			before[at] = count[row[at]];
			count[row[at]] += routes->class_size[at];
		}
		if (!count) {
			free(before);
			before = NULL;
		}
		free(count);
		routes->before[node] = before;
	}
	if (!routes->before || !routes->before[node])
		return NUPA_MODEL_NONE;
	return routes->before[node][routes->class_of[to]] + routes->place[to];
}

/* Endpoints that hang on the same nodes are a class; with explicit routes each is its own. */
static bool classes_build(struct build *build, struct routes *routes)
{
	const struct nupa_model_graph *graph = build->graph;
	struct build sets = { .graph = graph };
	struct routes found = { .sets_used = ROUTE_FIRST };
	uint32_t *class_of_set = NULL;
	bool done = false;

	for (uint32_t end = 0; end < graph->endpoints; end++) {
		const uint32_t first = build->in_start[end];
		uint32_t count = 0, set;

		if (graph->routes) {
			routes->class_of[end] = routes->classes++;
			continue;
		}
		for (uint32_t at = first; at < build->in_start[end + 1]; at++)
			build->links[count++] = graph->source[build->in[at]];
		set = set_of(&sets, &found, build->links, count);
		if (!set)
			goto out;
		routes->class_of[end] = set;
	}
	if (!graph->routes) {
		class_of_set = nupa_model_array(found.sets_used, sizeof(*class_of_set));
		if (!class_of_set)
			goto out;
		for (uint32_t end = 0; end < graph->endpoints; end++) {
			uint32_t *class = &class_of_set[routes->class_of[end]];

			if (!*class)
				*class = ++routes->classes;
			routes->class_of[end] = *class - 1;
		}
	}
	done = places_build(routes, graph->endpoints);
out:
	free(class_of_set);
	free(found.sets);
	free(sets.table);
	return done;
}

/* Distances to one endpoint, in links, through switches only. */
static void distances(struct build *build, uint32_t end)
{
	const struct nupa_model_graph *graph = build->graph;
	uint32_t head = 0, tail = 0;

	memset(build->distance, 0xff, build->nodes * sizeof(*build->distance));
	build->distance[end] = 0;
	build->queue[tail++] = end;
	while (head < tail) {
		const uint32_t node = build->queue[head++];

		if (node < graph->endpoints && node != end)
			continue;
		for (uint32_t at = build->in_start[node]; at < build->in_start[node + 1]; at++) {
			const uint32_t from = graph->source[build->in[at]];

			if (build->distance[from] != UINT32_MAX)
				continue;
			build->distance[from] = build->distance[node] + 1;
			build->queue[tail++] = from;
		}
	}
}

/* The rows of one class, by one of its endpoints. */
static bool rows_build(struct build *build, struct routes *routes, uint32_t end)
{
	const struct nupa_model_graph *graph = build->graph;
	const uint32_t class = routes->class_of[end];

	distances(build, end);
	for (uint32_t node = 0; node < build->nodes; node++) {
		uint32_t *row = &routes->row[(uint64_t)node * routes->classes + class];
		uint32_t count = 0;

		if (build->distance[node] == UINT32_MAX || build->distance[node] <= 1) {
			/* An endpoint of the class itself: its others are behind its switch. */
			*row = build->distance[node] == 1 ? ROUTE_DIRECT : ROUTE_NONE;
			if (node >= graph->endpoints || build->distance[node])
				continue;
		}
		for (uint32_t at = build->out_start[node]; at < build->out_start[node + 1]; at++) {
			const uint32_t target = graph->target[build->out[at]];
			const uint32_t far = build->distance[target];

			if (target >= graph->endpoints &&
			    (node == end ? far == 1 : far + 1 == build->distance[node]))
				build->links[count++] = build->out[at];
		}
		if (count)
			*row = set_of(build, routes, build->links, count);
		if (count && !*row)
			return false;
	}
	return true;
}

/* Explicit routes replace rows. */
static bool routes_replace(struct build *build, struct routes *routes)
{
	const struct nupa_model_graph *graph = build->graph;

	for (uint32_t at = 0; at < graph->routes; at++) {
		const uint32_t first = graph->route_start[at];
		const uint32_t count = graph->route_start[at + 1] - first;
		const uint32_t set = set_of(build, routes, graph->route_link + first, count);

		if (!set)
			return false;
		routes->row[(uint64_t)graph->route_node[at] * routes->classes +
			    routes->class_of[graph->route_endpoint[at]]] = set;
	}
	return true;
}

static bool build_all(struct build *build, struct routes *routes, char *error)
{
	const struct nupa_model_graph *graph = build->graph;
	uint32_t *first_of;
	bool done = true;

	if (!by_node(build, graph->source, &build->out_start, &build->out) ||
	    !by_node(build, graph->target, &build->in_start, &build->in) ||
	    !classes_build(build, routes))
		return nupa_model_refused(error, "no memory for routes");
	if ((uint64_t)build->nodes * routes->classes > ROWS_MAX)
		return nupa_model_refused(
		    error,
		    "%u nodes by %u classes of destinations are more than 2^28 "
		    "routes",
		    build->nodes, routes->classes);
	routes->row =
	    nupa_model_array((uint64_t)build->nodes * routes->classes, sizeof(*routes->row));
	first_of = nupa_model_array(routes->classes, sizeof(*first_of));
	if (!routes->row || !first_of) {
		free(first_of);
		return nupa_model_refused(error, "no memory for routes");
	}
	for (uint32_t end = graph->endpoints; end-- > 0;)
		first_of[routes->class_of[end]] = end;
	for (uint32_t at = 0; done && at < routes->classes; at++)
		done = rows_build(build, routes, first_of[at]);
	free(first_of);
	if (!done || !routes_replace(build, routes))
		return nupa_model_refused(error, "no memory for routes");
	routes->down_start = build->in_start;
	routes->down = build->in;
	build->in_start = build->in = NULL;
	return true;
}

bool nupa_model_routes_build(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			     char *error)
{
	struct build build = { .graph = graph, .nodes = sim->nodes };
	struct routes *routes = &sim->routes;
	bool done = false;

	routes->sets_used = ROUTE_FIRST;
	routes->class_of = nupa_model_array(graph->endpoints, sizeof(*routes->class_of));
	build.distance = nupa_model_array(build.nodes, sizeof(*build.distance));
	build.queue = nupa_model_array(build.nodes, sizeof(*build.queue));
	build.links = nupa_model_array(graph->links, sizeof(*build.links));
	if (routes->class_of && build.distance && build.queue && build.links)
		done = build_all(&build, routes, error);
	else
		nupa_model_refused(error, "no memory for routes");
	free(build.out_start);
	free(build.out);
	free(build.in_start);
	free(build.in);
	free(build.distance);
	free(build.queue);
	free(build.table);
	free(build.links);
	return done;
}

void nupa_model_routes_free(struct routes *routes, uint32_t nodes)
{
	for (uint32_t node = 0; routes->before && node < nodes; node++)
		free(routes->before[node]);
	free(routes->before);
	free(routes->class_of);
	free(routes->place);
	free(routes->class_size);
	free(routes->row);
	free(routes->sets);
	free(routes->down_start);
	free(routes->down);
}
