#!/bin/sh
# What a grid's pilot does: it looks at its node, fetches a payload, runs it, sends its output, and ends with a status
# of its own. Argument: the families of addresses that it has.
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
families=$1 work=${TMPDIR:-/tmp}/pilot
tools=/cvmfs/grid.example.org/bin
fetch() { "$tools/curl" -sS --fail --retry 5 --retry-all-errors --max-time 60 "$@"; }

echo "host $(hostname)"
echo "addresses $(ip -o address show scope global | awk '{ print $4 }' | sort | xargs)"
echo "cpus $(nproc)"
echo "memory $(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MiB"
kind=$(awk '$2 == "/tmp" { kind = $3 } END { print kind }' /proc/mounts)
echo "scratch $kind $(df -m /tmp | awk 'NR == 2 { print $2 }') MiB"
echo "found $(ls -A /tmp | xargs)"
mkdir "$work" && echo left >/tmp/left && cd "$work" || exit 1

echo "repositories $(ls /cvmfs | xargs)"
echo "none $(ls /cvmfs/none.example.org 2>&1)"
echo "tools $(ls "$tools" | xargs)"
echo "written $(touch /cvmfs/grid.example.org/x 2>&1)"
"$tools/openssl" verify -allow_proxy_certs -CApath /etc/grid-security/certificates \
	-untrusted "$X509_USER_PROXY" "$X509_USER_PROXY" >verified 2>&1
echo "proxy $? $(sed "s|$X509_USER_PROXY||" verified | xargs)"
echo "trusted $(touch /etc/grid-security/certificates/x 2>&1)"

for f in $families; do
	fetch "-$f" -o "payload$f" "http://www$f.example.net/payload" && echo "fetched by IPv$f"
done
"$tools/curl" -sS --max-time 5 -o neighbour http://10.1.0.9/payload 2>/dev/null && echo "reached a neighbour"
sh "payload${families#* }" >output && cat output
fetch -6 -T output "http://www6.example.net/output/$(hostname | sed "s/[.].*//")" && echo uploaded
exit 7
