# Calls of operators' scripts below $1: redirections, locks, copies with their modes, edits in
# place.
set -eu
cd "$1"
mkdir -p users/a/{tmp,new,cur} users/b/{tmp,new,cur} boxes
deliver() {
	for i in $(seq 1 30); do
		head -c 3000 /dev/zero >"users/$1/tmp/$2.$i"
		ln "users/$1/tmp/$2.$i" "users/$1/new/$2.$i"
		rm "users/$1/tmp/$2.$i"
	done
}
append() {
	for i in $(seq 1 15); do
		flock "boxes/$1.lock" -c "echo from $2 at $i >>boxes/$1; sed -i s/at/on/ boxes/$1"
	done
}
for user in a b; do
	deliver $user 1 &
	deliver $user 2 &
	append $user 1 &
	append $user 2 &
done
wait
for i in $(seq 1 100); do echo "$i" >"number.$i"; done
chmod 640 number.*
cp -a users backup
cp -p number.* backup/
install -m 600 number.1 installed
mv backup/a backup/c
grep -rl 7 backup >found || true
tar -cf all.tar backup
while read -r line; do echo "$line" >>copy; done <found
rm -rf backup users/a
sync -f .
