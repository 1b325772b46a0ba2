package setup

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
)

// site is a cluster that is all right: its own files recorded, ours as install writes them.
func site(t *testing.T) fstest.MapFS {
	t.Helper()
	tree := batchtest.Tree(t, filepath.Join("testdata", "site"))
	files := Setup{Grange: "/usr/local/bin/grange", Queues: []string{"vm"}, Requeues: 3}.Files()
	for _, name := range []string{"esub.grange", "elim.grange"} {
		tree["opt/lsf/etc/"+name] = &fstest.MapFile{Data: []byte(files[name]), Mode: 0o755}
	}
	tree["etc/ssh/sshd_config"] = &fstest.MapFile{Data: []byte("AllowGroups wheel\n"), Mode: 0o644}
	tree["usr/local/bin/grange"] = batchtest.Program(false)
	return tree
}

func check(t *testing.T, tree fstest.MapFS) map[string]batch.Finding {
	t.Helper()
	s, err := ReadSite(tree, "/opt/lsf/conf/lsf.conf")
	if err != nil {
		t.Fatal(err)
	}
	return batchtest.Findings(t, Check(s))
}

// always are what check says of every cluster that also has a queue on the host.
var always = []string{"esub-boundary", "other-queues"}

func TestCheckGood(t *testing.T) {
	found := check(t, site(t))
	for id, f := range found {
		if f.Level != batch.Good && !slices.Contains(always, id) {
			t.Errorf("%s: %+v", id, f)
		}
	}
	const want = 16
	if len(found) != want {
		t.Errorf("%d checks, not %d: %v", len(found), want, found)
	}
	for _, id := range always {
		if found[id].Level != batch.Advice {
			t.Errorf("%s is not said: %+v", id, found[id])
		}
	}
}

// TestFilesAreSound: what install writes, put where it says, is what check wants.
func TestFilesAreSound(t *testing.T) {
	tree := site(t)
	files := Setup{Grange: "/usr/local/bin/grange", Queues: []string{"vm"}, Requeues: 3, Socket: "/run/g.sock"}.Files()
	queues := "opt/lsf/conf/lsbatch/farm/configdir/lsb.queues"
	tree[queues] = &fstest.MapFile{Data: []byte("Begin Queue\nQUEUE_NAME = vm\n" + files["lsb.queues"] + "End Queue\n")}
	tree["opt/lsf/conf/lsf.conf"].Data = []byte(
		"LSF_CONFDIR=/opt/lsf/conf\nLSF_SERVERDIR=/opt/lsf/etc\nLSB_CONFDIR=/opt/lsf/conf/lsbatch\n" +
			files["lsf.conf"])
	tree["opt/lsf/conf/lsf.shared"].Data = []byte("Begin Resource\n" + files["lsf.shared"] + "End Resource\n")
	tree["opt/lsf/conf/lsf.cluster.farm"].Data = []byte("Begin ResourceMap\n" + files["lsf.cluster"] +
		"End ResourceMap\n")
	for id, f := range check(t, tree) {
		if f.Level != batch.Good && !slices.Contains(always, id) {
			t.Errorf("%s: %+v", id, f)
		}
	}
}

// TestCheckFinds spoils one thing of the sound cluster, and sees that check named it, and nothing else.
func TestCheckFinds(t *testing.T) {
	const apps = "opt/lsf/conf/lsbatch/farm/configdir/lsb.applications"
	const conf, queues, esub = "opt/lsf/conf/lsf.conf", "opt/lsf/conf/lsbatch/farm/configdir/lsb.queues", "opt/lsf/etc/esub.grange"
	for name, c := range map[string]struct {
		file, old, new string // old "": the file goes
		id             string
		want           batch.Level
	}{
		"no starter":      {queues, "JOB_STARTER  ", "#JOB_STARTER ", "starter-vm", batch.Broken},
		"another starter": {queues, "exec --batch lsf", "exec", "starter-vm", batch.Broken},
		"no quotes":       {queues, "'%USRCMD'", "%USRCMD", "starter-vm", batch.Broken},
		"a shell between": {queues, "= exec /usr", "= /usr", "starter-vm", batch.Warning},
		"no requeue": {queues, "REQUEUE_EXIT_VALUES = 199", "REQUEUE_EXIT_VALUES = 99 1990", "requeue-vm",
			batch.Warning},
		"no end of requeues": {queues, "MAX_JOB_REQUEUE     = 3", "", "requeue-vm", batch.Warning},
		"all jobs run again": {queues, "RERUNNABLE          = no", "RERUNNABLE = yes", "rerunnable-vm",
			batch.Advice},
		"no wrapper":           {"usr/local/bin/grange", "", "", "wrapper", batch.Broken},
		"no esub":              {esub, "", "", "esub", batch.Broken},
		"another esub":         {esub, "lsf esub", "lsf other", "esub", batch.Broken},
		"esub that fails":      {esub, ` || exit "${LSB_SUB_ABORT_VALUE:-97}"`, "", "esub", batch.Broken},
		"esub of other queues": {esub, "--queues vm", "--queues normal2", "esub", batch.Broken},
		"esub by choice": {conf, `LSB_ESUB_METHOD="grange"`, `LSB_ESUB_METHOD="other"`, "esub-method",
			batch.Broken},
		"a missing esub of others": {conf, `LSB_ESUB_METHOD="grange"`, `LSB_ESUB_METHOD="grange project(a)"`,
			"esub-project", batch.Broken},
		"esub sees no command": {conf, "LSB_SUB_COMMANDNAME=Y", "", "esub-command", batch.Broken},
		"signals to QEMU": {conf, "LSF_PROCESS_TRACKING=N", "LSF_PROCESS_TRACKING=Y", "process-tracking",
			batch.Warning},
		"the wrapper's figures": {conf, "LSF_LINUX_CGROUP_ACCT=Y", "", "accounting", batch.Warning},
		"lsrun":                 {conf, "LSF_DISABLE_LSRUN=Y", "", "lsrun", batch.Broken},
		"checkpoints": {queues, "RERUNNABLE          = no", "CHKPNT = /scratch/c 30", "checkpoint-vm",
			batch.Broken},
		"containers": {queues, "RERUNNABLE          = no", "CONTAINER = docker[image(x)]", "container-vm",
			batch.Broken},
		"a profile's starter": {apps, "NAME = plain", "NAME = plain\nJOB_STARTER = /bin/sh -c", "application-plain",
			batch.Broken},
		"a profile's container": {apps, "NAME = plain", "NAME = plain\nCONTAINER = docker[image(x)]",
			"application-plain", batch.Broken},
		"a profile's copies": {apps, "NAME = plain", "NAME = plain\nCHKPNT_DIR = /scratch/c", "application-plain",
			batch.Broken},
		"logins":    {"etc/ssh/sshd_config", "AllowGroups wheel", "", "login", batch.Warning},
		"no limits": {conf, `"memory cpu"`, `"memory"`, "enforce", batch.Warning},
		"short grace": {"opt/lsf/conf/lsbatch/farm/configdir/lsb.params", "INTERVAL = 10", "INTERVAL = 1",
			"terminate-interval", batch.Warning},
		"no elim":     {"opt/lsf/etc/elim.grange", "", "", "elim", batch.Warning},
		"no resource": {"opt/lsf/conf/lsf.shared", "grange_slots", "other_slots", "resource", batch.Warning},
		"no map": {"opt/lsf/conf/lsf.cluster.farm", "grange_slots", "other_slots", "resource",
			batch.Warning},
	} {
		t.Run(name, func(t *testing.T) {
			tree := site(t)
			batchtest.Spoil(t, tree, c.file, c.old, c.new)
			found := check(t, tree)
			if got := found[c.id]; got.Level != c.want {
				t.Errorf("%s is %q, not %q: %+v", c.id, got.Level, c.want, got)
			}
			for id, f := range found {
				if f.Level != batch.Good && id != c.id && !slices.Contains(always, id) {
					t.Errorf("also %s: %+v", id, f)
				}
			}
		})
	}
}

// TestNothingOfOurs: a cluster that knows nothing of grange.
func TestNothingOfOurs(t *testing.T) {
	tree := site(t)
	delete(tree, "opt/lsf/etc/esub.grange")
	queues := tree["opt/lsf/conf/lsbatch/farm/configdir/lsb.queues"]
	before, _, _ := strings.Cut(string(queues.Data), "Begin Queue\nQUEUE_NAME          = vm")
	queues.Data = []byte(before)
	if f := check(t, tree)["queues"]; f.Level != batch.Broken {
		t.Errorf("%+v", f)
	}
	for _, name := range []string{"opt/lsf/conf/lsbatch/farm/configdir/lsb.queues", "opt/lsf/conf/lsf.conf"} {
		delete(tree, name)
		if _, err := ReadSite(tree, "/opt/lsf/conf/lsf.conf"); err == nil {
			t.Errorf("without %s there is nothing to check", name)
		}
	}
}
