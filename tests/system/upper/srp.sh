#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# SRP by the kernel's LIO (ib_srpt) and ib_srp, over the RDMA CM.
#
#   srp.sh serve MIB ADDRESS PORT    a disk in memory; prints the target's ID
#   srp.sh attach ADDRESS PORT ID    logs in; prints the path of the block device
#   srp.sh detach
#   srp.sh end
set -eu

config=/sys/kernel/config
device=nupa_rdma0
disk=$config/target/core/rd_mcp_1/srp
srpt=$config/target/srpt

# The port's name is the second half of its first GID.
group() {
	gid=$(cat /sys/class/infiniband/$device/ports/1/gids/0)
	echo "$srpt/${gid#*:*:*:*:}/tpgt_1"
}

serve() {
	modprobe ib_srpt
	mountpoint -q $config || mount -t configfs none $config
	mkdir -p $disk
	echo "rd_pages=$(($1 * 256))" >$disk/control # of 4 KiB
	echo 1 >$disk/enable
	mkdir -p "$(group)/lun/lun_0"
	ln -s $disk "$(group)/lun/lun_0/srp"
	# ib_srpt admits initiators that are named, and calls a session of the CM by its own address.
	mkdir -p "$(group)/acls/$2/lun_0"
	ln -s "$(group)/lun/lun_0" "$(group)/acls/$2/lun_0/lun"
	echo "$3" >$srpt/discovery_auth/rdma_cm_port
	echo 1 >"$(group)/enable"
	cat /sys/module/ib_srpt/parameters/srpt_service_guid
}

attach() {
	modprobe sd_mod
	modprobe ib_srp
	id=${3#0x}
	echo "id_ext=$id,ioc_guid=$id,dest=$1:$2" >/sys/class/infiniband_srp/srp-$device-1/add_target
	tries=100 # the kernel looks for disks after the login
	until found=$(ls -d /sys/class/srp_host/host*/device/target*/*/block/* 2>/dev/null); do
		[ $((tries -= 1)) -gt 0 ] || { echo "the target has no disk" >&2 && exit 1; }
		sleep 0.1
	done
	echo "/dev/${found##*/}"
}

detach() {
	for port in /sys/class/srp_remote_ports/port*; do
		echo 1 >"$port/delete"
	done
}

end() {
	echo 0 >"$(group)/enable"
	rm "$(group)"/acls/*/lun_0/lun "$(group)/lun/lun_0/srp"
	rmdir "$(group)"/acls/*/lun_0 "$(group)"/acls/* "$(group)/lun/lun_0" "$(group)" "$(dirname "$(group)")" $disk
}

"$@"
