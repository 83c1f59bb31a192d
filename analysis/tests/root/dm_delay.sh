# The job of test_dm_delay.py: for each kind of request, a load recorded while device-mapper delays
# requests of that kind. Needs spoolscope-record and dmsetup, ext4 on vda, and MS.
mkdir -p "$1"
cd "$1"
modprobe dm-delay
export DM_DISABLE_UDEV=1
sectors=$(cat /sys/block/vda/size)
mkdir /spool

# delay READ WRITE FLUSH: milliseconds, from now on
delay() {
	echo "0 $sectors delay /dev/vda 0 $1 /dev/vda 0 $2 /dev/vda 0 $3" >/table
	if [ -b /dev/dm-0 ]; then
		dmsetup suspend slow
		dmsetup load slow /table
		dmsetup resume slow
	else
		dmsetup create slow /table
	fi
}

cat >/deliver <<'END'
for i in $(seq 70); do
	dd if=/dev/zero of=/spool/new/$i bs=4k count=1 conv=fsync
done
END
cat >/fetch <<'END'
echo 3 >/proc/sys/vm/drop_caches
for i in $(seq 80); do
	read -r line </spool/box$((i % 20))/$i
done
END

# record NAME LOAD: with what the kernel's own trace says of the requests meanwhile
record() {
	echo >$trace/trace
	echo 1 >$trace/tracing_on
	spoolscope-record run --spool /spool --snapshot none --output $1.seg --answers $1.json -- \
		sh $2 >$1.out
	echo 0 >$trace/tracing_on
	grep -c 'LOST' $trace/trace >$1.lost || true
	grep ' block_bio_' $trace/trace >$1.bios
}

trace=/sys/kernel/tracing
echo 0 >$trace/tracing_on
echo mono >$trace/trace_clock
echo 16384 >$trace/buffer_size_kb
echo 1 >$trace/events/block/block_bio_queue/enable
echo 1 >$trace/events/block/block_bio_remap/enable

delay 0 0 0
mount -t ext4 -o noatime /dev/dm-0 /spool
# The shell's own words: the start of a program takes an emulator a fifth of a second.
mkdir /spool/new $(seq -f /spool/box%g 0 19)
for i in $(seq 80); do
	echo mail >/spool/box$((i % 20))/$i
done
sync
delay $MS 0 0
record read /fetch
delay 0 $MS 0
record write /deliver
rm /spool/new/*
delay 0 0 $MS
record flush /deliver
delay 0 0 0
