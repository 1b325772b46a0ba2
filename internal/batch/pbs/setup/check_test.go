package setup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/program"
)

// answers are the files in testdata/site/qmgr that stand for what the server says.
var answers = map[string]string{"list hook": "qmgr/hooks", "list queue @default": "qmgr/queues",
	"list server": "qmgr/server", "list resource grange": "qmgr/resource",
	"export hook grange application/x-python default": "qmgr/launch.py",
	"export hook grange application/x-config default": "qmgr/grange.json"}

// site is a host of a PBS that is all right: server and mom are on it.
func site(t *testing.T) fstest.MapFS {
	t.Helper()
	tree := batchtest.Tree(t, filepath.Join("testdata", "site"))
	conf, err := Setup{Grange: "/usr/local/bin/grange", Queues: []string{"vm"}, Requeues: 3}.Config()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := os.ReadFile("../testdata/pbsnodes.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"var/spool/pbs/mom_priv/hooks/grange.PY": string(Hook),
		"var/spool/pbs/mom_priv/hooks/grange.CF": string(conf), "qmgr/launch.py": string(Hook),
		"qmgr/grange.json": string(conf), "qmgr/pbsnodes": string(nodes)} {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o600}
	}
	tree["usr/libexec/grange/scp"] = &fstest.MapFile{Data: []byte(Staging), Mode: 0o755}
	tree["etc/ssh/sshd_config"] = &fstest.MapFile{Data: []byte("AllowUsers root\n"), Mode: 0o644}
	tree["usr/local/bin/grange"] = batchtest.Program(false)
	return tree
}

func check(t *testing.T, tree fstest.MapFS) map[string]batch.Finding {
	t.Helper()
	run := func(_ context.Context, c program.Call) ([]byte, error) {
		name := "qmgr/pbsnodes"
		if filepath.Base(c.Path) == "qmgr" {
			name = answers[c.Args[1]]
		}
		if f, ok := tree[name]; ok {
			return f.Data, nil
		}
		return nil, errors.New("qmgr: no such object")
	}
	s, err := ReadSite(t.Context(), tree, run, "/etc/pbs.conf")
	if err != nil {
		t.Fatal(err)
	}
	return batchtest.Findings(t, Check(s))
}

func TestCheckGood(t *testing.T) {
	found := check(t, site(t))
	for id, f := range found {
		if f.Level != batch.Good {
			t.Errorf("%s: %+v", id, f)
		}
	}
	const want = 18
	if len(found) != want {
		t.Errorf("%d checks, not %d: %v", len(found), want, found)
	}
}

// TestCheckFinds spoils one thing of the sound host, and sees that check named it, and nothing else.
func TestCheckFinds(t *testing.T) {
	const hooks, mom = "qmgr/hooks", "var/spool/pbs/mom_priv/"
	for name, c := range map[string]struct {
		file, old, new string // old "": the file goes
		id             string
		want           batch.Level
		also           string // another finding of the same cause
	}{
		"no hook":  {hooks, "Hook grange", "Hook other", "hook", batch.Broken, ""},
		"disabled": {hooks, "enabled = true", "enabled = false", "hook", batch.Broken, ""},
		"no launch": {hooks, "execjob_launch,execjob_epilogue", "execjob_epilogue", "hook-events",
			batch.Broken, ""},
		"no end": {hooks, "execjob_end,\n        exechost_startup", "exechost_startup", "hook-events",
			batch.Warning, ""},
		"hosts stay in": {hooks, "fail_action = offline_vnodes", "fail_action = none", "hook-fail-action",
			batch.Warning, ""},
		"little time":        {hooks, "alarm = 30", "alarm = 3", "hook-alarm", batch.Warning, ""},
		"before the cgroups": {hooks, "order = 110", "order = 1", "cgroup-hook", batch.Broken, ""},
		"no cgroups": {hooks, "Hook pbs_cgroups\n    type = site\n    enabled = true",
			"Hook pbs_cgroups\n    type = site\n    enabled = false", "cgroup-hook", batch.Warning, ""},
		"an older program": {"qmgr/launch.py", "import json", "import  json", "hook-program",
			batch.Warning, ""},
		"another program": {"qmgr/launch.py", "# grange's hook for OpenPBS", "# a hook", "hook-program",
			batch.Broken, ""},
		"no program":       {"qmgr/launch.py", "", "", "hook-program", batch.Broken, ""},
		"no configuration": {"qmgr/grange.json", "", "", "hook-config", batch.Broken, "queues"},
		"a wrapper by name": {"qmgr/grange.json", `"/usr/local/bin/grange"`, `"grange"`, "hook-config",
			batch.Broken, ""},
		"another wrapper": {"qmgr/grange.json", `"--batch"`, `"--other"`, "hook-config", batch.Broken, ""},
		"no requeues": {"qmgr/grange.json", `"requeues": 3`, `"requeues": 0`, "hook-config",
			batch.Advice, ""},
		"no resource":              {"qmgr/resource", "", "", "resource", batch.Broken, ""},
		"a resource of the server": {"qmgr/resource", "flag = h", "flag = r", "resource", batch.Broken, ""},
		"a queue that is not":      {"qmgr/queues", "Queue vm", "Queue vm2", "queue-vm", batch.Warning, ""},
		"a queue for every host": {"qmgr/queues", "    default_chunk.grange = True\n", "", "queue-vm",
			batch.Broken, ""},
		"a routing queue": {"qmgr/queues", "Queue vm\n    queue_type = Execution",
			"Queue vm\n    queue_type = Route", "queue-vm", batch.Broken, ""},
		"blind scheduler": {"var/spool/pbs/sched_priv/sched_config", ", grange", "", "sched-resources",
			batch.Warning, ""},
		"scheduler elsewhere": {"var/spool/pbs/sched_priv/sched_config", "", "", "sched-resources",
			batch.Advice, ""},
		"no host":             {"qmgr/pbsnodes", `"grange":"True"`, `"grange":"False"`, "hosts", batch.Broken, ""},
		"the mom has no hook": {mom + "hooks/grange.PY", "", "", "mom-hook", batch.Broken, ""},
		"the mom has an old one": {mom + "hooks/grange.PY", "import json", "import  json", "mom-hook",
			batch.Warning, ""},
		"the mom's configuration": {mom + "hooks/grange.CF", "{", "[", "mom-hook-config", batch.Broken, ""},
		"copies by plain scp": {"etc/pbs.conf", "PBS_SCP=/usr/libexec/grange/scp", "PBS_SCP=/bin/scp", "staging",
			batch.Broken, ""},
		"another script": {"usr/libexec/grange/scp", "scp -F none", "scp", "staging", batch.Broken, ""},
		"logins":         {"etc/ssh/sshd_config", "AllowUsers", "#AllowUsers", "login", batch.Warning, ""},
		"no wrapper":     {"usr/local/bin/grange", "", "", "wrapper", batch.Broken, ""},
		"new hooks are refused": {mom + "config", "$clienthost head", "$reject_root_scripts true",
			"reject-root-scripts", batch.Broken, ""},
		"users are killed": {mom + "config", "$clienthost head", "$restrict_user on", "restrict-user",
			batch.Broken, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tree := site(t)
			batchtest.Spoil(t, tree, c.file, c.old, c.new)
			found := check(t, tree)
			if got := found[c.id]; got.Level != c.want {
				t.Errorf("%s is %q, not %q: %+v", c.id, got.Level, c.want, got)
			}
			for id, f := range found {
				if f.Level != batch.Good && id != c.id && id != c.also {
					t.Errorf("also %s: %+v", id, f)
				}
			}
		})
	}
}

func TestCheckWrapperOfMom(t *testing.T) {
	for name, change := range map[string]func(*fstest.MapFile) *fstest.MapFile{
		"dynamic": func(*fstest.MapFile) *fstest.MapFile { return batchtest.Program(true) },
		"a script": func(*fstest.MapFile) *fstest.MapFile {
			return &fstest.MapFile{Data: []byte("#!/bin/sh\n"), Mode: 0o755}
		},
		"writable":        func(f *fstest.MapFile) *fstest.MapFile { f.Mode = 0o777; return f },
		"for nobody else": func(f *fstest.MapFile) *fstest.MapFile { f.Mode = 0o700; return f },
	} {
		tree := site(t)
		tree["usr/local/bin/grange"] = change(tree["usr/local/bin/grange"])
		if f := check(t, tree)["wrapper"]; f.Level != batch.Broken {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestExceptions: a mom that ends strangers' processes may leave QEMU's user alone.
func TestExceptions(t *testing.T) {
	tree := site(t)
	tree["var/spool/pbs/mom_priv/config"].Data = []byte(
		"$restrict_user true\n$restrict_user_exceptions admin,libvirt-qemu\n")
	if f := check(t, tree)["restrict-user"]; f.Level != batch.Good {
		t.Errorf("%+v", f)
	}
}

func TestNoPBS(t *testing.T) {
	for _, text := range []string{"PBS_START_SERVER=0\nPBS_START_MOM=0\n", ""} {
		tree := fstest.MapFS{"etc/pbs.conf": {Data: []byte(text)}}
		if text == "" {
			tree = fstest.MapFS{}
		}
		if _, err := ReadSite(t.Context(), tree, nil, "/etc/pbs.conf"); err == nil {
			t.Errorf("%q is a host of PBS", text)
		}
	}
}

// TestServerAway: what cannot be asked is said, and the mom is looked at all the same.
func TestServerAway(t *testing.T) {
	tree := site(t)
	for _, name := range answers {
		delete(tree, name)
	}
	found := check(t, tree)
	if found["server"].Level != batch.Advice || found["mom-hook"].Level != batch.Good {
		t.Errorf("%+v", found)
	}
}
