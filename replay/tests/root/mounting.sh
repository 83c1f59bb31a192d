# Mounts other filesystems below the spool $1, works in them, and unmounts them; binds a directory
# of the spool at another place of it; and does both in mount namespaces of its own. Before it
# began, a tmpfs was mounted on `sub` and `src` on `early`.
set -e
cd "$1"
mkdir over bound
echo under > over/own
mount -t tmpfs none over
mkdir over/d
echo x > "$1/over/d/f"
mv over/d/f over/d/own
cp over/d/own over/own
(cd over && mkdir r && touch r/1 && rm -r r && cd .. && touch back)
ls over > /dev/null
! ln src over/link 2> /dev/null
! rmdir over 2> /dev/null
umount over
[ "$(cat over/own)" = under ]
mv over/own over/was
# A new mount at the same place, with the same mount number.
mount -t tmpfs none over
touch over/was over/other
umount over
rm over/was
echo 1 > src/a
mount --bind src bound
echo 2 >> bound/a
mv bound/a src/b 2> /dev/null # to another mount: copied and removed
mkdir "$1/bound/d"
(cd bound/d && touch e && mv e ../f)
umount bound
rmdir bound src/d

# Filesystems that were mounted before.
mkdir sub/d
touch "$1/early/1"
umount "$1/sub"
touch "$1/sub/1"
mv sub/1 "$1/sub/2"
mkdir sub/below/x
umount early
mkdir early/own
touch "$1/early/own/2" src/last

# Mounts of one process and its children, then a namespace with the number of one that is gone.
for turn in 1 2; do
    unshare -m sh -ec 'mount -t tmpfs none "$1/sub"; mkdir "$1/sub/d"; touch sub/d/f
        mv "$1/sub/d/f" sub/d/g; (cd sub; touch r ../side); umount "$1/sub"
        touch "$1/sub/after"; mv "$1/sub/after" "$1/sub/after.$2"' sh "$1" $turn &
    for i in $(seq 20); do
        mkdir "$1/sub/p$turn.$i"
        touch "$1/sub/p$turn.$i/x"
    done
    wait $!
    unshare -m sh -c 'mkdir "$1/sub/own.$2"; touch sub/own.$2/x' sh "$1" $turn
done
