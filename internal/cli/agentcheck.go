package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/libvirt"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/vmuid"
)

// printConfinement says what stands between a guest that breaks out of its QEMU and the host. That libvirt does not
// answer is no fault of the configuration; that it would run QEMU as root is one, and so is that accounts have the
// users of VMs.
func (a *app) printConfinement(ctx context.Context, c config.Agent) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := errors.Join(vmuid.Check(os.DirFS("/"), c.VMUIDs), vmuid.Ask(ctx, names.Host(), c.VMUIDs)); err != nil {
		return err
	}
	driver, err := newDriver(c)
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
		fmt.Fprintf(a.out, "QEMU    %s\n", usersOfVMs(found, c.VMUIDs))
		fmt.Fprintf(a.out, "sVirt   %s\n", svirt(found))
		fmt.Fprintf(a.out, "seccomp %s\n", filtered(found))
	}
	_, err = fmt.Fprintf(a.out, "agent   %s\n", agentConfinement(c.Socket))
	return err
}

// usersOfVMs says whom QEMU runs as.
func usersOfVMs(c libvirt.Confinement, uids farm.UIDs) string {
	own := fmt.Sprintf("user %d, group %d", c.UID, c.GID)
	switch {
	case uids.None():
		return "runs as " + own + " for all VMs: vm_uids is not set"
	case c.Shared != "":
		return "runs as " + own + " for all VMs: " + c.Shared
	case c.Own < c.VMs:
		return fmt.Sprintf("each VM has a uid of its own (%v), but for %d of %d that run as %s", uids,
			c.VMs-c.Own, c.VMs, own)
	}
	return fmt.Sprintf("each VM has a uid of its own (%v)", uids)
}

// svirt says what keeps VMs from each other's files beside their users.
func svirt(c libvirt.Confinement) string {
	if len(c.Models) == 0 {
		return "none: libvirt has no security driver; try: a kernel with AppArmor or SELinux, and security_driver in " +
			"libvirt's qemu.conf left alone"
	}
	text := strings.Join(c.Models, ", ")
	if !slices.Contains(c.Models, "apparmor") {
		return text
	}
	if c.Profile != "" {
		text += ", profiles by libvirt: " + c.Profile
	} else {
		text += ", profiles by grange"
	}
	if c.VMs > 0 {
		text += fmt.Sprintf("; enforced for %d of %d VMs", c.Enforced, c.VMs)
	}
	return text
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

// readOnly reports whether a directory is below a mount point that is read-only, as ProtectSystem= makes it. See
// proc(5): field 5 is the mount point, field 6 its options; later lines lie over earlier ones.
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
