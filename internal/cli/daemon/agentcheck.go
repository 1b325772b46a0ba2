package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/libvirt"
	"github.com/grange-project/grange/internal/mounts"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/rootpath"
	"github.com/grange-project/grange/internal/vmuid"
)

// agentCheck is what `grange agent --check` reports: what stands between a guest that breaks out of its QEMU and the
// host. "": not known, as nothing of libvirt is where it does not answer.
type agentCheck struct {
	Config  string `json:"config"`
	Default bool   `json:"default"` // there is no such file, and all defaults hold
	QEMU    string `json:"qemu"`
	SVirt   string `json:"svirt,omitempty"`
	Seccomp string `json:"seccomp,omitempty"`
	Agent   string `json:"agent"`
}

// checkAgent checks a configuration that was read from a file. That libvirt does not answer is no fault of the
// configuration; that it would run QEMU as root is one, and so is that accounts have the users of VMs.
func (a agentCommands) checkAgent(ctx context.Context, c config.Agent, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := checkMungeKey(c.Worker.MungeKey); err != nil {
		return err
	}
	for _, text := range c.Renamed {
		fmt.Fprintln(a.Err, "grange: note:", text)
	}
	for _, text := range catalogue.CheckPulls(rootpath.Host(), c.PullImages) {
		fmt.Fprintln(a.Err, "grange: warning:", text)
	}
	if !a.JSON {
		if err := printChecked(a.App, path); err != nil { // also where what follows finds a fault
			return err
		}
	}
	if err := errors.Join(vmuid.Check(os.DirFS("/"), c.VMUIDs), vmuid.Ask(ctx, names.Host(), c.VMUIDs)); err != nil {
		return err
	}
	driver, err := newDriver(c)
	if err != nil {
		return err
	}
	defer driver.Close()
	_, missing := os.Stat(path)
	report := agentCheck{Config: path, Default: missing != nil, Agent: agentConfinement(c.Socket)}
	found, err := driver.Confinement(ctx)
	switch {
	case farm.IsCode(err, hyper.CodeAway):
		report.QEMU = "not known: libvirt does not answer on " + c.Libvirt
	case err != nil:
		return err
	default:
		report.QEMU, report.SVirt, report.Seccomp = usersOfVMs(found, c.VMUIDs), svirt(found), filtered(found)
	}
	return a.printAgentCheck(report)
}

func (a agentCommands) printAgentCheck(r agentCheck) error {
	if a.JSON {
		return a.PrintJSON(r)
	}
	for _, line := range [][2]string{{"QEMU", r.QEMU}, {"sVirt", r.SVirt}, {"seccomp", r.Seccomp}, {"agent", r.Agent}} {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "%-7s %s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

// usersOfVMs returns whom QEMU runs as.
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

// svirt returns what keeps VMs from each other's files beside their users.
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

// agentConfinement returns what the agent's own process is kept from, by its unit.
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
	table, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return "not known: " + err.Error()
	}
	defer table.Close()
	sealed, err := readOnly(table, "/usr")
	if err != nil {
		return "not known: " + err.Error()
	}
	return strings.Join([]string{
		"process " + fmt.Sprint(pid),
		either(strings.Contains(string(status), "NoNewPrivs:\t1"), "gets no new privileges", "may get new privileges"),
		either(sealed, "cannot write /usr", "can write /usr"),
	}, ", ")
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// readOnly reports whether a directory is reached by a mount that is read-only, as ProtectSystem= makes it.
func readOnly(mountinfo io.Reader, dir string) (bool, error) {
	all, err := mounts.All(mountinfo)
	over, _ := mounts.Over(all, dir)
	return over.ReadOnly, err
}
