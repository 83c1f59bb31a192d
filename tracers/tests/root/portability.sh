# The job of test_portability.py: what does the recorder say and see on this kernel?
# Takes a directory for its output and the rules of causes.
# Needs spoolscope-record, strace, allcalls, mapped and uring, and ext4, xfs and btrfs on vda, vdb, vdc.
mkdir -p "$1"
cd "$1"
uname -r >release
spoolscope-record doctor >doctor-unloaded.json
for fs in ext4 xfs btrfs; do modprobe $fs; done

# counters NAME: the kernel's own, read between the makings of the directories NAME and NAME-read
cat >work <<'END'
counters() {
	mkdir /ext4/$1
	cat /sys/block/vda/stat /sys/block/vdb/stat /sys/block/vdc/stat >"$1.disks"
	sed -n 's/ transactions .*//p' /proc/fs/jbd2/vda-8/info >"$1.ext4"
	sed -n 's/^log \([0-9]*\).*/\1/p' /proc/fs/xfs/stat >"$1.xfs"
	sed -n 's/^commits //p' /sys/fs/btrfs/*-*/commit_stats >"$1.btrfs"
	mkdir /ext4/$1-read
}

dd if=/dev/zero of=/ext4/mail bs=4k count=128
mapped /ext4/mail /ext4/copy >touches
touch /xfs/mail
uring /xfs /other >operations
sync
counters before
for fs in ext4 xfs btrfs; do
	mkdir /$fs/traced /$fs/plain
	ALLCALLS_COUNTS=/tmp/counts strace $STRACE -o $fs.strace allcalls /$fs/traced
	ALLCALLS_COUNTS=/tmp/counts allcalls /$fs/plain
done
sync
counters after
END
disks="vda vdb vdc"
for fs in ext4 xfs btrfs; do
	mkdir /$fs
	mount -t $fs /dev/${disks%% *} /$fs
	disks=${disks#* }
done
spoolscope-record run --spool /ext4 --spool /xfs --spool /btrfs \
	--output capture.seg --answers answers.json -- sh work

# Sums of calls, with nothing else than what they need loaded.
cat >work-summed <<'END'
for fs in ext4 xfs btrfs; do
	mkdir /$fs/summed
	ALLCALLS_COUNTS=/tmp/counts strace $STRACE -o summed.$fs allcalls /$fs/summed
done
END
mkdir sums
spoolscope-record run --rollup 60 --cause-rules "$2" --spool /ext4 --spool /xfs --spool /btrfs \
	--output sums/capture.seg --answers sums/answers.json -- sh work-summed
