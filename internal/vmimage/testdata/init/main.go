// Command init stands in for grange-guest in tests of images: it says that user space is reached, runs its questions to
// the image and switches off.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func main() {
	fmt.Println("GRANGE-INIT-REACHED")
	if os.Getenv("bench") == "" {
		check()
	}
	syscall.Sync()
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	time.Sleep(time.Minute)
}

func check() {
	for _, m := range [][3]string{{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"},
		{"devtmpfs", "/dev", "devtmpfs"}} {
		if err := syscall.Mount(m[0], m[1], m[2], 0, ""); err != nil {
			fmt.Println("MOUNT", m[1], err)
		}
	}
	script := `set -e
while read -r group path; do busybox insmod "$path" 2>&1 | grep -v "File exists" && echo "MODULE-FAILED $path" || true; done < /etc/grange/modules
lscpu | grep -E '^(Architecture|CPU\(s\))'
echo hello | xz -c | xz -dc
sha256sum /etc/hosts; nproc; stat -c %a /tmp; id -un; timeout 5 true; env true
grep -E 'iso9660|overlay|fuse|ext4|virtiofs' /proc/filesystems
df -k / || true; cat /proc/cmdline; free -m
ls /sys/class/virtio-ports || true
LC_ALL=C.UTF-8 bash -c 's=äö; echo "LENGTH ${#s}"' 2>&1
echo CHECKS-DONE`
	cmd := exec.Command("/bin/bash", "-c", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	fmt.Println("SCRIPT", cmd.Run())
}
