package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/config"
)

func TestOldLogsGo(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for name, age := range map[string]time.Duration{"grange-old.log": 2 * logAge, "grange-new.log": 0,
		"grange-live.log": 2 * logAge, "other.log": 2 * logAge} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	a := joined(&Agent{cfg: config.Agent{LibvirtLogs: dir},
		vms:   map[string]*vm{"j": {record: record{Name: "grange-live"}}},
		Cloud: cloud.New(cloud.Options{})})
	a.recovery.removeOldLogs(now)
	for name, stays := range map[string]bool{"grange-old.log": false, "grange-new.log": true, "grange-live.log": true,
		"other.log": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %v", name, err, stays)
		}
	}
}
