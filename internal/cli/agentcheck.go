package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/libvirt"
)

// printConfinement says what stands between a guest that breaks out of its QEMU and the host. That libvirt does not answer is no fault of the
// configuration; that it would run QEMU as root is one.
func (a *app) printConfinement(ctx context.Context, c config.Agent) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	driver, err := libvirt.New(libvirt.Config{Socket: c.Libvirt, RunDir: c.RunDir, Accelerator: libvirt.TCG})
	if err != nil {
		return err
	}
	defer driver.Close()
	found, err := driver.Confinement(ctx)
	switch {
	case farm.IsCode(err, hyper.CodeAway):
		fmt.Fprintf(a.out, "QEMU    not known: libvirt does not answer on %s\n", c.Libvirt)
	case err != nil:
		return err
	default:
		fmt.Fprintf(a.out, "QEMU    runs as user %d, group %d\n", found.UID, found.GID)
		fmt.Fprintf(a.out, "sVirt   %s\n", svirt(found.Models))
		fmt.Fprintf(a.out, "seccomp %s\n", filtered(found))
	}
	_, err = fmt.Fprintf(a.out, "agent   %s\n", agentConfinement(c.Socket))
	return err
}

func svirt(models []string) string {
	if len(models) == 0 {
		return "none: VMs are kept from each other by nothing but QEMU itself"
	}
	return strings.Join(models, ", ")
}

func filtered(c libvirt.Confinement) string {
	if c.VMs == 0 {
		return "not known: no VM runs"
	}
	return fmt.Sprintf("filters the system calls of %d of %d VMs", c.Filtered, c.VMs)
}

// agentConfinement says what the agent's own process is kept from, by its unit.
func agentConfinement(socket string) string {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return "not known: no agent serves on " + socket
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "not known: " + err.Error()
	}
	var pid int32
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "not known: " + err.Error()
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return "not known: " + err.Error()
	}
	return strings.Join([]string{
		"process " + fmt.Sprint(pid),
		either(strings.Contains(string(status), "NoNewPrivs:\t1"), "gets no new privileges", "may get new privileges"),
		either(readOnly(string(mounts), "/usr"), "cannot write /usr", "can write /usr"),
	}, ", ")
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// readOnly reports whether a directory is below a mount point that is read-only, as ProtectSystem= makes it. See proc(5): field 5 is the mount
// point, field 6 its options; later lines lie over earlier ones.
func readOnly(mountinfo, dir string) bool {
	var longest string
	is := false
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		point := f[4]
		if (point == dir || point == "/" || strings.HasPrefix(dir, point+"/")) && len(point) >= len(longest) {
			longest, is = point, strings.HasPrefix(f[5]+",", "ro,")
		}
	}
	return is
}
