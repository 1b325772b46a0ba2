package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/grange-project/grange/api"
)

// Installed is this machine as a host: the agent of its package and the system's libvirtd, both of which systemd runs.
// They must run already.
func Installed() *Lab {
	l := &Lab{Dir: "/var/lib/grange", Binary: "/usr/bin/grange", Socket: "/run/grange/agent.sock",
		Config: "/etc/grange/agent.toml", installed: true}
	l.Client = api.NewClient(l.Socket)
	return l
}

const (
	agentUnit    = "grange-agent.service"
	libvirtUnits = "libvirtd.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket virtqemud.service " +
		"virtqemud.socket virtqemud-ro.socket virtqemud-admin.socket"
)

// systemctl reaches units that may not exist: Debian 12 has one daemon, others have several.
func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// stopUnits kills what the units run, and keeps systemd from starting it again.
func stopUnits(units string) error {
	ctx := context.Background()
	names := strings.Fields(units)
	systemctl(ctx, append([]string{"kill", "--kill-whom=main", "--signal=KILL"}, names...)...)
	return systemctl(ctx, append([]string{"stop"}, installedUnits(ctx, names)...)...)
}

func startUnits(ctx context.Context, units string) error {
	return systemctl(ctx, append([]string{"start"}, installedUnits(ctx, strings.Fields(units))...)...)
}

// installedUnits leaves out those that systemd does not have.
func installedUnits(ctx context.Context, names []string) (found []string) {
	for _, name := range names {
		if exec.CommandContext(ctx, "systemctl", "cat", name).Run() == nil {
			found = append(found, name)
		}
	}
	return found
}

func unitPID(unit string) int {
	out, err := exec.Command("systemctl", "show", "-p", "MainPID", "--value", unit).Output()
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return pid
}

func unitLog(unit string) string {
	out, _ := exec.Command("journalctl", "--no-pager", "-q", "-o", "cat", "-u", unit).Output()
	return string(out)
}
