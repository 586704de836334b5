#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# NFS 4.2 by the kernel's own files, without nfs-utils: no rpc.nfsd, rpc.mountd or mount.nfs.
# `nupa vm storage nfs` runs it in two guests.  It needs root.
#
#   nfs.sh serve MIB CLIENT...               a tmpfs, exported to clients at these addresses
#   nfs.sh offer rdma|tcp ADDRESS            nothing: nfsd listens on all addresses
#   nfs.sh attach rdma|tcp ADDRESS CLIENT    mounts it; prints the path of a file in it
#   nfs.sh detach      may be run after an attach that failed
#   nfs.sh withdraw    likewise
#   nfs.sh end
set -eu

exported=/run/nupa-exported
mounted=/run/nupa-mounted
nfsd=/proc/fs/nfsd
rpc=/proc/net/rpc
forever=2147483647
rdma_port=20049
tcp_port=2049

# Answers in advance what the kernel would ask rpc.mountd (nfs-utils, support/export/cache.c): the
# domain of a client, a domain's export, and the path of file handles with fsid 0.
allow() {
	for client; do
		echo "nfsd $client $forever all" >$rpc/auth.unix.ip/channel
	done
	# NFSEXP_INSECURE_PORT, NFSEXP_ASYNC, NFSEXP_NOSUBTREECHECK, NFSEXP_FSID
	flags=$((0x2 | 0x10 | 0x400 | 0x2000))
	echo "all $exported $forever $flags 65534 65534 0" >$rpc/nfsd.export/channel
	printf '%s\n' "all 1 \\x00000000 $forever $exported" >$rpc/nfsd.fh/channel
}

serve() {
	mkdir -p $exported
	mount -t tmpfs -o "size=$1M" exported $exported
	shift
	mount -t nfsd nfsd $nfsd
	echo '-2 -3 +4' >$nfsd/versions
	echo 1048576 >$nfsd/max_block_size # else the kernel's choice for little memory: 128 KiB
	echo 10 >$nfsd/nfsv4leasetime
	echo 10 >$nfsd/nfsv4gracetime
	allow "$@"
	echo "tcp $tcp_port" >$nfsd/portlist
	echo "rdma $rdma_port" >$nfsd/portlist
	echo 4 >$nfsd/threads
}

offer() {
	:
}

attach() {
	[ "$1" = rdma ] && port=$rdma_port || port=$tcp_port
	mkdir -p $mounted
	options="vers=4.2,proto=$1,port=$port,addr=$2,clientaddr=$3,sec=sys"
	mount -i -t nfs4 -o "$options,rsize=1048576,wsize=1048576" "$2:/" $mounted
	grep -q " $mounted nfs4 .*proto=$1," /proc/mounts
	echo $mounted/data
}

detach() {
	! mountpoint -q $mounted || umount $mounted
}

withdraw() {
	rm -f $exported/data
}

end() {
	echo 0 >$nfsd/threads
	for cache in nfsd.fh nfsd.export auth.unix.ip; do # the export's path keeps the tmpfs busy
		date +%s >$rpc/$cache/flush
	done
	umount $exported $nfsd
}

"$@"
