package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/program"
)

// cellOf plays qconf of a cell: objects by the option that shows them. Changes are kept as the command lines that made
// them.
type cellOf struct {
	shows   map[string]string
	changes []string
	files   []string // contents of the files that were handed over
}

func (c *cellOf) run(_ context.Context, call program.Call) ([]byte, error) {
	line := strings.Join(call.Args, " ")
	if text, ok := c.shows[line]; ok {
		return []byte(text), nil
	}
	switch call.Args[0] {
	case "-sconf":
		return nil, &program.Failed{Program: "qconf", Status: 1, Said: "configuration " + call.Args[1] + " not defined"}
	case "-Mc", "-Mconf", "-Aconf":
		text, err := os.ReadFile(call.Args[1])
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, string(text))
		c.changes = append(c.changes, call.Args[0]+" "+filepath.Base(call.Args[1]))
		return nil, nil
	case "-mattr":
		c.changes = append(c.changes, line)
		return nil, nil
	}
	return nil, fmt.Errorf("qconf %s is not played", line)
}

func fresh(t *testing.T) *cellOf {
	return &cellOf{shows: map[string]string{"-sq vm.q": batchtest.Recorded(t, "queue.txt"), "-sc": batchtest.Recorded(t, "complexes.txt"),
		"-sconf": batchtest.Recorded(t, "global.txt")}}
}

func TestInstallChangesWhatIsNotSet(t *testing.T) {
	played := fresh(t)
	c := &gridengine.Cell{Run: played.run}
	s := Setup{Queue: "vm.q", Host: "bn1", Links: t.TempDir(), Program: "/usr/local/bin/grange"}
	plan, err := Plan(context.Background(), c, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := Install(context.Background(), plan, func(string) {}); err != nil {
		t.Fatal(err)
	}
	want := []string{"-Mc complexes", "-Aconf bn1", "-Mconf global",
		"-mattr queue suspend_method /usr/local/bin/grange gridengine suspend $job_pid vm.q",
		"-mattr queue resume_method /usr/local/bin/grange gridengine resume $job_pid vm.q",
		"-mattr queue terminate_method /usr/local/bin/grange gridengine terminate $job_pid vm.q",
		"-mattr queue qtype BATCH vm.q", "-mattr queue starter_method " + s.Links + "/" + StarterLink + " vm.q"}
	if diff := cmp.Diff(want, played.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if !strings.Contains(played.files[0], "\nvmimages vmimages RESTRING") ||
		!strings.HasPrefix(played.files[0], played.shows["-sc"][:100]) {
		t.Errorf("complexes:\n%s", played.files[0])
	}
	if conf := gridengine.ParseSettings(played.files[1]).Values; conf["load_sensor"] != s.Links+"/"+SensorLink ||
		conf["rlogin_daemon"] != "/bin/false" || conf["shepherd_cmd"] != "" {
		t.Errorf("the host's configuration: %v", conf)
	}
	if played.files[2] != played.shows["-sconf"] {
		t.Errorf("the cell's configuration became:\n%s", played.files[2])
	}
	if to, err := os.Readlink(s.Links + "/" + StarterLink); to != s.Program {
		t.Errorf("the starter leads to %q, %v", to, err)
	}

	// The same once more, on what it made.
	played.shows["-sc"], played.shows["-sconf bn1"] = played.files[0], played.files[1]
	queue := gridengine.ParseSettings(played.shows["-sq vm.q"])
	for _, a := range s.attributes() {
		queue.Set(a[0], a[1])
	}
	played.shows["-sq vm.q"] = queue.String()
	if plan, err := Plan(context.Background(), c, s); err != nil || len(plan) > 0 {
		t.Errorf("a second call: %v, %v", plan, err)
	}
}

func TestInstallKeepsASitesLoadSensor(t *testing.T) {
	played := fresh(t)
	played.shows["-sconf bn1"] = "#bn1:\nmailer /bin/mail\nload_sensor /site/sensor\n"
	c := &gridengine.Cell{Run: played.run}
	plan, err := planHost(context.Background(), c, Setup{Host: "bn1", Links: "/l", Shepherd: true, Logins: true}, nil)
	if err != nil || len(plan) != 1 {
		t.Fatalf("%v, %v", plan, err)
	}
	if err := plan[0].do(context.Background()); err != nil {
		t.Fatal(err)
	}
	if want := "mailer /bin/mail\nload_sensor /site/sensor,/l/" + SensorLink + "\nshepherd_cmd /l/" + ShepherdLink +
		"\n"; played.files[0] != want {
		t.Errorf("%q, want %q", played.files[0], want)
	}
}

func TestCheck(t *testing.T) {
	links := t.TempDir()
	program := filepath.Join(links, "program")
	if err := errors.Join(os.WriteFile(program, nil, 0o755),
		os.Symlink(program, filepath.Join(links, StarterLink))); err != nil {
		t.Fatal(err)
	}
	s := Setup{Queue: "vm.q", Host: "bn1", Links: links, Program: program}
	for name, c := range map[string]struct {
		queue, conf map[string]string
		want        []string // starts of what is found
		pe          string
	}{
		"as the package makes it": {want: nil},
		"no starter": {queue: map[string]string{"starter_method": "NONE"},
			want: []string{"broken queue vm.q has no starter_method"}},
		"a starter on one host": {queue: map[string]string{"starter_method": "NONE,[bn1=/x]"},
			want: []string{"broken starter_method differs"}},
		"another starter": {queue: map[string]string{"starter_method": "/bin/sh"},
			want: []string{"broken starter_method is /bin/sh"}},
		"a starter that is gone": {queue: map[string]string{"starter_method": "/nowhere/" + StarterLink},
			want: []string{"broken starter_method /nowhere"}},
		"interactive": {queue: map[string]string{"qtype": "BATCH INTERACTIVE"},
			want: []string{"broken queue vm.q is of type"}},
		"methods": {queue: map[string]string{"suspend_method": "NONE", "terminate_method": "NONE", "rerun": "FALSE"},
			want: []string{"warning rerun", "warning suspend_method", "warning terminate_method"}},
		"both limits": {queue: map[string]string{"s_rt": "1:0:0", "h_rt": "2:0:0"}, want: []string{"warning both s_rt"}},
		"no groups":   {conf: map[string]string{"gid_range": "none"}, want: []string{"broken gid_range"}},
		"no collector": {conf: map[string]string{"execd_params": "PDC_INTERVAL=NEVER ENABLE_ADDGRP_KILL=false"},
			want: []string{"broken execd_params: PDC", "warning execd_params: ENABLE"}},
		"no sensor": {conf: map[string]string{"load_sensor": "none"},
			want: []string{"warning host bn1 has no load sensor"}},
		"a prolog": {queue: map[string]string{"prolog": "/site/p.sh"},
			conf: map[string]string{"epilog": "sge@/site/e.sh"},
			want: []string{"broken queue vm.q: prolog", "broken the configuration: epilog"}},
		"a prolog as nobody knows": {queue: map[string]string{"prolog": "nosuchuser-x@/site/p.sh"},
			want: []string{"broken queue vm.q: prolog is nosuchuser-x@/site/p.sh, and there is no user"}},
		"another user's":   {queue: map[string]string{"prolog": "daemon@/site/p.sh"}},
		"an @ in the path": {queue: map[string]string{"prolog": "/site/a@b.sh"}, want: []string{"broken queue vm.q: prolog"}},
		"root's on one host": {queue: map[string]string{"prolog": "root@/site/p.sh,[@old=/site/p.sh]"},
			want: []string{"broken queue vm.q: prolog is /site/p.sh"}},
		"none on one host": {queue: map[string]string{"epilog": "NONE,[bn1=root@/site/p.sh]"}},
		"control groups": {conf: map[string]string{"execd_params": "USE_CGROUPS=yes,PDC_INTERVAL=1"},
			want: []string{"warning execd_params: USE_CGROUPS=yes"}},
		"no control groups": {conf: map[string]string{"execd_params": "USE_CGROUPS=false"}},
		"no accounting file": {conf: map[string]string{"reporting_params": "accounting=false reporting=true"},
			want: []string{"warning reporting_params: accounting=false"}},
		"few groups": {queue: map[string]string{"slots": "1,[bn1=64]"}, conf: map[string]string{"gid_range": "100-149"},
			want: []string{"warning gid_range has 50 groups, and a host 64 slots"}},
		"little address space": {queue: map[string]string{"h_vmem": "1G"},
			want: []string{"broken h_vmem of the queue is 1G"}},
		"little address space, and small jobs": {queue: map[string]string{"s_vmem": "500M"},
			conf: map[string]string{"shepherd_cmd": "/l/" + ShepherdLink},
			want: []string{"broken shepherd_cmd"}}, // the link is not there
		"enough address space": {queue: map[string]string{"h_vmem": "2G,[bn1=INFINITY]"}},
		"checkpoints":          {queue: map[string]string{"ckpt_list": "blcr"}, want: []string{"warning ckpt_list is blcr"}},
		"root's":               {queue: map[string]string{"prolog": "root@/site/p.sh"}},
		"start of parallel jobs": {pe: "start_proc_args /bin/true\nstop_proc_args NONE\ncontrol_slaves FALSE\n",
			want: []string{"broken parallel environment smp: start_proc_args"}},
		"tasks of parallel jobs": {pe: "start_proc_args NONE\nstop_proc_args NONE\ncontrol_slaves TRUE\n",
			want: []string{"warning parallel environment smp: control_slaves"}},
		"logins": {conf: map[string]string{"qlogin_daemon": "builtin"},
			want: []string{"broken host bn1: qlogin_daemon"}},
	} {
		played := fresh(t)
		played.shows["-sc"] += complexes["vmslots"] + "\n" + complexes["vmimages"] + "\n"
		played.shows["-sp smp"] = "pe_name smp\nslots 99\nstart_proc_args NONE\nstop_proc_args NONE\ncontrol_slaves " +
			"FALSE\n"
		if c.pe != "" {
			played.shows["-sp smp"] = c.pe
		}
		queue, conf := gridengine.ParseSettings(played.shows["-sq vm.q"]), gridengine.ParseSettings("")
		for _, a := range s.attributes() {
			queue.Set(a[0], a[1])
		}
		for _, a := range s.host() {
			conf.Set(a[0], a[1])
		}
		for k, v := range c.queue {
			queue.Set(k, v)
		}
		for k, v := range c.conf {
			conf.Set(k, v)
		}
		played.shows["-sq vm.q"], played.shows["-sconf bn1"] = queue.String(), conf.String()
		found, err := Check(context.Background(), &gridengine.Cell{Run: played.run}, s)
		if err != nil || len(found) != len(c.want) {
			t.Errorf("%s: %v, %v", name, found, err)
			continue
		}
		for i, f := range found {
			if text := string(f.Level) + " " + f.Found; !strings.HasPrefix(text, c.want[i]) || f.ID == "" ||
				f.Why == "" || f.Do == "" {
				t.Errorf("%s: %q, want %q", name, text, c.want[i])
			}
		}
	}
}

func TestSensor(t *testing.T) {
	var out strings.Builder
	loads := []Load{{3, []string{"sl9", "debian 12", "el:9", "alma"}}, {}}
	err := Sensor(strings.NewReader("\n\n\nquit\n\n"), &out, "bn1", func() (Load, error) {
		if len(loads) == 0 {
			return Load{7, []string{"old"}}, errors.New("no agent")
		}
		l := loads[0]
		loads = loads[1:]
		return l, nil
	})
	nothing := "begin\nbn1:vmslots:0\nbn1:vmimages:none\nend\n"
	if want := "begin\nbn1:vmslots:3\nbn1:vmimages:alma,sl9\nend\n" + nothing + nothing; out.String() != want ||
		err != nil {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestTerminate ends real processes: one that ends by itself, one that ignores TERM, one that is stopped, and none.
func TestTerminate(t *testing.T) {
	for name, script := range map[string]string{
		"polite":   "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done",
		"stubborn": "trap '' TERM; echo up; while :; do sleep 0.01; done",
		"stopped":  "trap 'exit 9' TERM; echo up; kill -STOP $$; while :; do sleep 0.01; done",
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 8))
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- Terminate(cmd.Process.Pid, 300*time.Millisecond) }()
		status := cmd.Wait()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if killed := strings.Contains(fmt.Sprint(status), "killed"); killed != (name == "stubborn") ||
			killed && time.Since(began) < 300*time.Millisecond {
			t.Errorf("%s: %v after %v", name, status, time.Since(began))
		}
		if err := Terminate(cmd.Process.Pid, time.Second); err != nil {
			t.Errorf("%s, once more: %v", name, err)
		}
	}
	for _, pid := range []int{-1, 0, 1} {
		if Terminate(pid, 0) == nil {
			t.Errorf("process %d was ended", pid)
		}
	}
}

func TestPrepareShepherd(t *testing.T) {
	const ours = "starter_method=/usr/local/libexec/grange/" + StarterLink + "\n"
	for text, want := range map[string]string{
		"a=1\nh_vmem=300M\nh_vmem_is_consumable_job=0\ns_vmem=200M\n" +
			ours: "a=1\nh_vmem=INFINITY\ngrange_h_vmem=300M\nh_vmem_is_consumable_job=0\ns_vmem=INFINITY\n" + ours,
		"h_vmem=300M\nstarter_method=none\n":      "h_vmem=300M\nstarter_method=none\n",
		"h_vmem=INFINITY\n" + ours:                "h_vmem=INFINITY\n" + ours,
		"h_vmem=1G\nh_vmem=2G\n" + ours:           "",
		"h_vmem=1G\ngrange_h_vmem=9G\n" + ours:    "",
		"h_vmem=1G\nstarter_method=none\n" + ours: "",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "config")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := PrepareShepherd(dir)
		got, _ := os.ReadFile(path)
		if want == "" && err == nil || want != "" && (err != nil || string(got) != want) {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
}
