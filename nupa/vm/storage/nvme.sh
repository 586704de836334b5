#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# NVMe over Fabrics by the kernel's own files, without nvme-cli: configfs for the target,
# /dev/nvme-fabrics for the initiator.  `nupa vm storage nvme` runs it in two guests.  It needs
# root.
#
#   nvme.sh serve MIB CLIENT...               a disk in memory, null_blk, for any client
#   nvme.sh offer rdma|tcp ADDRESS            at that address
#   nvme.sh attach rdma|tcp ADDRESS CLIENT    connects; prints the path of the block device
#   nvme.sh detach      may be run after an attach that failed
#   nvme.sh withdraw    likewise
#   nvme.sh end
set -eu

nqn=nqn.2026-11.nupa:storage
config=/sys/kernel/config
subsystem=$config/nvmet/subsystems/$nqn
port=$config/nvmet/ports/1
number=4420

serve() {
	mountpoint -q $config || mount -t configfs none $config
	mkdir $config/nullb/storage
	# It copies block by block: with its 512 bytes the disk takes longer than any transport.
	(cd $config/nullb/storage && echo "$1" >size && echo 4096 >blocksize &&
		echo 1 >memory_backed && echo 1 >power)
	mkdir $subsystem
	echo 1 >$subsystem/attr_allow_any_host
	mkdir $subsystem/namespaces/1
	echo /dev/storage >$subsystem/namespaces/1/device_path
	echo 1 >$subsystem/namespaces/1/enable
}

offer() {
	mkdir $port
	(cd $port && echo "$1" >addr_trtype && echo ipv4 >addr_adrfam && echo "$2" >addr_traddr &&
		echo $number >addr_trsvcid)
	ln -s $subsystem $port/subsystems/$nqn
}

attach() {
	exec 3<>/dev/nvme-fabrics
	echo "transport=$1,traddr=$2,trsvcid=$number,nqn=$nqn,nr_io_queues=1,queue_size=32" >&3
	head -c 64 <&3 >&2 # instance=N,cntlid=N
	for disk in /sys/class/nvme-subsystem/*/nvme*n1; do
		echo "/dev/${disk##*/}"
	done
}

detach() {
	for controller in /sys/class/nvme/*/delete_controller; do
		[ ! -e "$controller" ] || echo 1 >"$controller"
	done
}

withdraw() {
	rm -f $port/subsystems/$nqn
	rmdir $port
}

end() {
	echo 0 >$subsystem/namespaces/1/enable
	rmdir $subsystem/namespaces/1 $subsystem $config/nullb/storage
}

"$@"
