package batchsystem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// TestInstallJSON: what sets a batch system up says with --json what it did, and nothing else.
func TestInstallJSON(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "root/etc/slurm")
	cell := filepath.Join(dir, "sge/bin/lx-amd64")
	for _, d := range []string{conf, cell} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := filepath.Abs("../../batch/gridengine/setup/testdata")
	if err != nil {
		t.Fatal(err)
	}
	qconf := fmt.Sprintf("#!/bin/sh\ncase $1 in -sq) cat %[1]s/queue.txt;; -sc) cat %[1]s/complexes.txt;; -sconf) "+
		"cat %[1]s/global.txt;; *) echo denied >&2; exit 1;; esac\n", recorded)
	for path, text := range map[string]string{filepath.Join(conf, "slurm.conf"): "ClusterName=x\n",
		filepath.Join(cell, "qconf"): qconf} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SGE_ROOT", filepath.Join(dir, "sge"))
	root := filepath.Join(dir, "root")
	for _, c := range []struct {
		args, key string
		fails     bool
	}{
		{"pbs install --grange /bin/true --queue vm --dir " + dir + "/pbs", "files", false},
		{"lsf install --grange /bin/true --queue vm --dir " + dir + "/lsf", "files", false},
		{"htcondor install --grange /bin/true --execute --access --root " + root, "files", false},
		{"slurm install --dry-run --default micro --root " + root, "files", false},
		{"slurm uninstall --root " + root, "removed", false},
		{"gridengine install --dry-run --queue vm.q --links " + dir + "/links --grange /bin/true", "changes", false},
		// the links are made; qconf refuses the rest
		{"gridengine install --queue vm.q --links " + dir + "/links --grange /bin/true", "changes", true},
	} {
		var printed bytes.Buffer
		a := &app.App{Out: &printed, Err: io.Discard}
		root := a.Tree(app.Group{Title: "Batch systems", Commands: Commands(a)})
		root.SetArgs(append(strings.Fields(c.args), "--json"))
		err := root.ExecuteContext(t.Context())
		out := printed.String()
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		var said map[string]any
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			t.Errorf("%s says %q: %v", c.args, out, err)
			continue
		}
		list, ok := said[c.key].([]any)
		if !ok || len(list) == 0 && c.key != "removed" {
			t.Errorf("%s says nothing of its %s: %s", c.args, c.key, out)
		}
		if c.fails && strings.Count(err.Error(), "denied") != 1 {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// TestCheckStatus: what is broken ends with status 1, in JSON too; a host without the system is no finding but an
// error.
func TestCheckStatus(t *testing.T) {
	// a recorded one without grange's own files
	check := []string{"lsf", "check", "--root", "../../batch/lsf/setup/testdata/site", "--conf", "/opt/lsf/conf/lsf.conf"}
	for _, more := range []string{"--json", ""} {
		out, err := run(t, strings.Fields(strings.Join(append(check, more), " "))...)
		if status := (app.ExitError{}); !errors.As(err, &status) || status.Status != app.ExitFailed {
			t.Errorf("%v", err)
		}
		var found []batch.Finding
		if err := json.Unmarshal([]byte(out), &found); more != "" &&
			(err != nil || batch.Worst(found) != batch.Broken) {
			t.Errorf("%v: %s", err, out)
		}
		if !strings.Contains(out, "esub") || !strings.Contains(out, "missing") {
			t.Errorf("%s", out)
		}
	}
	for _, args := range []string{"lsf check --conf /nowhere/lsf.conf", "pbs check --conf /nowhere/pbs.conf"} {
		if _, err := run(t, strings.Fields(args)...); app.CodeOf(err) != string(farm.CodeBatchConf) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
