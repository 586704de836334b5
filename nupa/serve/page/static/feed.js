// SPDX-License-Identifier: BSD-3-Clause
// The stream of snapshots and events; it connects again by itself.

const SILENT_MS = 4000;
const AGAIN_MS = 2000;

/** Calls on.snapshot, on.event, on.missed(count), on.trouble and on.state ("connecting", "live", "lost"). */
export class Feed {
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.state = "";
    this.heard = 0;
    this.generation = "";
    this.lastEvent = 0;
    this.open();
    setInterval(() => this.check(), 1000);
  }

  open() {
    this.say("connecting");
    this.source = new EventSource(this.url);
    const read = (kind, act) =>
      this.source.addEventListener(kind, (message) => {
        this.heard = performance.now();
        act(JSON.parse(message.data), message.lastEventId);
      });
    read("snapshot", (snapshot) => {
      this.say("live");
      this.on.snapshot(snapshot);
    });
    read("event", (event, id) => {
      const generation = id.split(":")[0];
      if (generation !== this.generation) [this.generation, this.lastEvent] = [generation, 0];
      if (event.seq <= this.lastEvent) return; // sent again after a new connection
      if (this.lastEvent && event.seq > this.lastEvent + 1) this.on.missed(event.seq - this.lastEvent - 1);
      this.lastEvent = event.seq;
      this.on.event(event);
    });
    read("trouble", (trouble) => this.on.trouble(trouble.message));
    this.source.onerror = () => {
      this.say("lost");
      // The browser does not try again after an answer such as 503.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.open(), AGAIN_MS);
    };
  }

  check() {
    if (this.state === "live" && performance.now() - this.heard > SILENT_MS) this.say("lost");
  }

  say(state) {
    if (state === this.state) return;
    this.state = state;
    this.on.state(state);
  }
}
