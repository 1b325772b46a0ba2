# Changes the system that this runs in, as a recipe says. Beside it: packages, files.tar, users, parameters and
# run, each a file that may be empty.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C
cd "$(dirname "$0")"

if [ -s packages ]; then
	# shellcheck disable=SC2046
	set -- $(cat packages)
	if command -v apt-get >/dev/null; then
		apt-get -q update
		apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"
		apt-get clean
	elif command -v dnf >/dev/null; then
		dnf -y install "$@"
		dnf clean all
	else
		echo "no apt-get and no dnf in the image: its packages cannot be installed" >&2
		exit 3
	fi
fi
[ ! -s files.tar ] || tar -C / -xpf files.tar --numeric-owner
# A line of users: NAME UID SHELL GROUPS, with "-" for what is not said. Keys are in NAME.keys.
while read -r name uid shell groups; do
	[ "$uid" = - ] && uid= || uid="-u $uid"
	[ "$shell" = - ] && shell=/bin/bash
	id "$name" >/dev/null 2>&1 || useradd -m $uid -s "$shell" "$name"
	[ "$groups" = - ] || usermod -a -G "$groups" "$name"
	if [ -s "$name.keys" ]; then
		home=$(getent passwd "$name" | cut -d: -f6)
		install -d -m 700 -o "$name" -g "$(id -g "$name")" "$home/.ssh"
		install -m 600 -o "$name" -g "$(id -g "$name")" "$name.keys" "$home/.ssh/authorized_keys"
	fi
done <users
[ ! -s parameters ] || sh "$PWD/parameters.sh" "$PWD/parameters"
[ ! -s run ] || (cd / && sh -eu "$OLDPWD/run")
