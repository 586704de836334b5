#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# iSER and iSCSI by the kernel's LIO (configfs, without targetcli) and open-iscsi.
# `nupa vm storage iser` runs it in two guests.  It needs root; $ISCSI is the folder in which the
# package open-iscsi was unpacked.
#
#   iser.sh serve MIB CLIENT...               a disk in memory, LIO's rd_mcp, for any client
#   iser.sh offer rdma|tcp ADDRESS            at that address
#   iser.sh attach rdma|tcp ADDRESS CLIENT    logs in; prints the path of the block device
#   iser.sh detach      may be run after an attach that failed
#   iser.sh withdraw    likewise
#   iser.sh end
set -eu

iqn=iqn.2026-11.nupa:storage
config=/sys/kernel/config
disk=$config/target/core/rd_mcp_0/storage
target=$config/target/iscsi/$iqn
group=$target/tpgt_1
port=3260
daemon=/run/nupa-iscsid

serve() {
	mountpoint -q $config || mount -t configfs none $config
	mkdir -p $disk
	echo "rd_pages=$(($1 * 256))" >$disk/control # of 4 KiB
	echo 1 >$disk/enable
	mkdir -p $group/lun/lun_0
	ln -s $disk $group/lun/lun_0/storage
	(cd $group/attrib && echo 0 >authentication && echo 1 >generate_node_acls &&
		echo 0 >demo_mode_write_protect)
	echo 1 >$group/enable
}

offer() {
	mkdir "$group/np/$2:$port"
	[ "$1" = tcp ] || echo 1 >"$group/np/$2:$port/iser"
}

# iscsiadm and iscsid, with the libraries that came with them.
open_iscsi() {
	libraries=$ISCSI/usr/lib/x86_64-linux-gnu
	program=$1
	shift
	"$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$ISCSI/usr/sbin/$program" "$@"
}

node() {
	open_iscsi iscsiadm -m node -T $iqn "$@" >&2
}

attach() {
	[ "$1" = rdma ] && transport=iser || transport=tcp
	if [ ! -e $daemon.pid ]; then
		mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi
		echo "InitiatorName=$iqn-initiator" >/etc/iscsi/initiatorname.iscsi
		echo 'node.session.scan = auto' >$daemon.conf
		open_iscsi iscsid -c $daemon.conf -p $daemon.pid
	fi
	node -p "$2:$port" -I default -o new
	node -p "$2:$port" -o update -n iface.transport_name -v $transport
	node -p "$2:$port" --login
	tries=100 # the kernel looks for disks after the login
	until disk=$(ls -d /sys/class/iscsi_session/session*/device/target*/*/block/* 2>/dev/null); do
		[ $((tries -= 1)) -gt 0 ] || { echo "the target has no disk" >&2 && exit 1; }
		sleep 0.1
	done
	echo "/dev/${disk##*/}"
}

detach() {
	for session in /sys/class/iscsi_session/session*; do
		[ ! -e "$session" ] || node --logout
	done
	node -o delete
}

withdraw() {
	rmdir $group/np/*
}

end() {
	echo 0 >$group/enable
	rm $group/lun/lun_0/storage
	rmdir $group/lun/lun_0 $group $target $disk
}

"$@"
