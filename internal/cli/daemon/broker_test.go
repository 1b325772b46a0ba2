package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// TestEveryDriverIsWired: what a configuration may name, there is.
func TestEveryDriverIsWired(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ours")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, k := range systems.All {
		d := k.Name
		b := config.Broker{System: string(d)}
		if d == farm.ExecDriver {
			b.Program = program
		}
		for _, environment := range []map[string]string{nil,
			{"SGE_ROOT": "/opt/sge", "SLURM_CONF": "/etc/slurm-west/slurm.conf"}} {
			b.Environment = environment
			if system, err := openBroker(b); err != nil || system == nil || system.Name() != d {
				t.Errorf("%s: %v, %v", d, system, err)
			}
		}
		system, err := batchOf(config.Batch{System: b.System, Program: b.Program})
		if gate, err2 := gateOf(system, config.Batch{System: "slurm"}); err != nil || err2 != nil || gate == nil {
			t.Errorf("%s: %v, %v", d, err, err2)
		}
		told := config.Batch{System: b.System, Program: b.Program, Comments: true}
		system, err = batchOf(told)
		if takes := d == farm.Slurm; (err == nil) != takes || takes && commentsOf(system, told) == nil {
			t.Errorf("%s with comments: %v", d, err)
		}
		if known := slices.Contains(brokerNames(config.Server{}), b.System); known != (d != farm.ExecDriver) {
			t.Errorf("a cell may name %s: %v", d, known)
		}
	}
	system, err := batchOf(config.Batch{})
	gate, err2 := gateOf(system, config.Batch{System: "slurm"})
	if gate != nil || commentsOf(system, config.Batch{}) != nil || err != nil || err2 != nil {
		t.Errorf("no batch system: %v, %v, %v", gate, err, err2)
	}
}

func TestBrokerOfACell(t *testing.T) {
	c := config.Server{Brokers: map[string]config.Broker{"west": {System: "gridengine"}, "slurm": {System: "lsf"}}}
	for broker, want := range map[string]farm.BatchSystem{"west": farm.GridEngine, "slurm": farm.LSF, "pbs": farm.PBS,
		"exec": "", "east": ""} {
		system, err := brokerOf(c, farm.Cell{Name: "farm", Broker: broker})
		if want == "" {
			if err == nil {
				t.Errorf("%s: %v, %v", broker, system, err)
			}
		} else if err != nil || system.Name() != want {
			t.Errorf("%s: %v, %v", broker, system, err)
		}
	}
	if names := brokerNames(c); !slices.Contains(names, "west") ||
		len(slices.Compact(names)) != len(systems.All) {
		t.Errorf("%v", names)
	}
}
