package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits holds systemd's units to what the programs do: they report when they serve, and the agent lists bridges by
// netlink.
func TestUnits(t *testing.T) {
	for unit, lines := range map[string][]string{
		"grange-agent.service": {"Type=notify", "WatchdogSec=1min", "NoNewPrivileges=yes", "ProtectSystem=full",
			"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"},
		"grange-server-backup.service": {"Type=oneshot", "NoNewPrivileges=yes", "ProtectSystem=strict", "User=grange"},
		"grange-tune-audit.service":    {"Type=oneshot", "NoNewPrivileges=yes", "ProtectSystem=strict"},
		"grange-worker-watch.service":  {"NoNewPrivileges=yes", "ProtectSystem=full", "User=slurm"},
		"grange-server.service": {"Type=notify", "WatchdogSec=2min", "CPUWeight=1000", "NoNewPrivileges=yes",
			"ProtectSystem=strict"},
	} {
		text, err := os.ReadFile(filepath.Join("../../packaging/systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains("\n"+string(text), "\n"+line+"\n") {
				t.Errorf("%s lacks %s", unit, line)
			}
		}
	}
}
