package vm

import (
	"strings"
	"testing"
)

// TestExecDisks has a job use several scratch disks, on disks and in memory, and swap; it has its caller's limits, and
// leaves no core file.
func TestExecDisks(t *testing.T) {
	r := grange(t, "--memory", "256M", "--memory-peak", "320M", "--scratch", "64M", "--scratch", "/more=32M",
		"--scratch", "/fast=16M,tmpfs", "--", "sh", "-c", `for dir in /tmp /more /fast; do
	echo x >$dir/x && awk -v d=$dir '$2 == d {print $2, $3}' /proc/mounts | tail -n 1
done
awk 'NR > 1 {print $2, $3}' /proc/swaps
dd if=/dev/zero of=/more/full bs=1M 2>&1 | grep -c "No space left"
ulimit -c`)
	want := "/tmp ext4\n/more ext4\n/fast tmpfs\npartition 65532\n1\n0\n"
	if got := r.out; got != want {
		t.Errorf("the job sees\n%s; want\n%s%s", got, want, r.errors)
	}
	r = run(t, host.Exec(ctx(t), "--disk", "4G", "--", "true"), "")
	if r.code == 0 || !strings.Contains(r.errors, "has no root disk") {
		t.Errorf("a root disk of an image in memory: status %d, %s", r.code, r.errors)
	}
}
