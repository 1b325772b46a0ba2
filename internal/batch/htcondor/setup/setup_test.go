package setup

import (
	"bytes"
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
)

func TestHostAd(t *testing.T) {
	h := Host{Images: []string{"sl9", "micro"}, Free: 3, Metal: htcondor.MetalAsked, Version: "v1"}
	want := "GrangeReady = true\nGrangeImages = \"micro,sl9\"\nGrangeFreeSlots = 3\nGrangeMetal = " +
		"\"asked\"\nGrangeVersion = \"v1\"\nGrangeProblem = \"\"\n-\n"
	if got := h.Ad(); got != want {
		t.Errorf("%s", cmp.Diff(want, got))
	}
	h.Problem = "no \"agent\"\nhere"
	if got := h.Ad(); !strings.Contains(got, "GrangeReady = false\n") ||
		!strings.Contains(got, `GrangeProblem = "no \"agent\"\nhere"`) {
		t.Error(got)
	}
}

func TestNotReady(t *testing.T) {
	for starts, want := range map[string]string{"1": "300", "3": "300", "4": "197"} {
		ad, err := classad.Parse("NumShadowStarts = " + starts)
		if err != nil {
			t.Fatal(err)
		}
		got := NotReady(ad, "no agent\nanswers", 3, false)
		if want := "HookStatusCode = " + want + "\nHookStatusMessage = \"grange: no agent answers\"\n"; got != want {
			t.Errorf("start %s: %q", starts, got)
		}
	}
	if got := NotReady(classad.Ad{}, "never", 3, true); !strings.HasPrefix(got, "HookStatusCode = 197\n") {
		t.Errorf("for good: %q", got)
	}
}

// golden is HTCondor's own configuration of a pool of one machine with grange's files in it, as condor_config_val -dump
// -expand printed it.
func golden(t *testing.T) Config {
	t.Helper()
	text, err := os.ReadFile("testdata/config-23.9.txt")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// look is a host on which all that install writes is there.
func look() Look {
	files := fstest.MapFS{}
	for _, f := range Standard().ExecuteFiles("/etc/condor/config.d") {
		mode := fs.FileMode(0o644)
		if f.Program {
			mode = 0o755
		}
		files[f.Path[1:]] = &fstest.MapFile{Data: []byte(f.Text), Mode: mode}
	}
	return Look{Execute: true, Access: true,
		Stat: func(path string) (fs.FileInfo, error) {
			if path == "/" {
				path = "/."
			}
			return files.Stat(path[1:])
		},
		Read: func(path string) ([]byte, error) { return files.ReadFile(path[1:]) }}
}

func TestCheck(t *testing.T) {
	if found := golden(t).Check(look()); len(found) > 0 {
		t.Errorf("a sound pool: %+v", found)
	}
	enough, l := golden(t), look()
	enough["MEMORY"], enough["STARTER_RLIMIT_AS"], l.Grants = "4096", "8000000000", 4*farm.GiB
	if found := enough.Check(l); len(found) > 0 {
		t.Errorf("limits that are enough: %+v", found)
	}
	if c := golden(t); !c.Runs("STARTD") || !c.Runs("SCHEDD") || c.Runs("CREDD") {
		t.Errorf("daemons: %s", c["DAEMON_LIST"])
	}
	for says, change := range map[string]func(Config, *Look){
		"USER_JOB_WRAPPER is not set": func(c Config, _ *Look) { delete(c, "USER_JOB_WRAPPER") },
		"is not grange's": func(_ Config, l *Look) {
			l.Read = func(string) ([]byte, error) { return []byte("#!/bin/sh\nexec \"$@\"\n"), nil }
		},
		"no job starts on this host":         func(c Config, _ *Look) { c["USER_JOB_WRAPPER"] = "/usr/libexec/none" },
		"of their own (MOUNT_UNDER_SCRATCH)": func(c Config, _ *Look) { c["MOUNT_UNDER_SCRATCH"] = `"/tmp,/usr/libexec"` },
		"does not publish":                   func(c Config, _ *Look) { c["STARTD_CRON_JOBLIST"] = "OTHER" },
		"does not look at GrangeReady":       func(c Config, _ *Look) { c["START"] = "TRUE" },
		"opens a shell": func(_ Config, l *Look) {
			l.Read = func(string) ([]byte, error) { return []byte("htcondor wrapper --metal never"), nil }
		},
		"PreCmd, containers": func(c Config, _ *Look) {
			c["START"] = strings.Replace(c["START"], "TARGET.PreCmd =?= undefined && ", "", 1)
		},
		"what the wrapper takes the place of": func(c Config, _ *Look) {
			c["START"] = strings.Replace(c["START"], `unparse(PostCmd) =?= "" && `, "", 1)
		},
		"beside jobs in virtual machines": func(c Config, _ *Look) { c["ENABLE_SSH_TO_JOB"] = "true" },
		"VALID_COD_USERS":                 func(c Config, _ *Look) { c["VALID_COD_USERS"] = "eva" },
		"SINGULARITY_JOB": func(c Config,
			_ *Look) {
			c["SINGULARITY_JOB"] = "TARGET.Image isnt undefined"
		},
		"USE_DEFAULT_CONTAINER": func(c Config, _ *Look) { c["USE_DEFAULT_CONTAINER"] = "True" },
		"START_LOCAL_UNIVERSE": func(c Config, l *Look) {
			c["ENABLE_SSH_TO_JOB"], c["START_SCHEDULER_UNIVERSE"] = "False", "False"
			l.Access = false
			l.Read = func(string) ([]byte, error) { return []byte("htcondor wrapper --metal never"), nil }
		},
		"START_SCHEDULER_UNIVERSE": func(c Config, l *Look) {
			c["ENABLE_SSH_TO_JOB"], c["START_LOCAL_UNIVERSE"] = "False", "False"
			l.Access = false
			l.Read = func(string) ([]byte, error) { return []byte("htcondor wrapper --metal never"), nil }
		},
		"LD_PRELOAD would run": func(_ Config, l *Look) {
			l.Read = func(path string) ([]byte, error) {
				if path == "/usr/bin/grange" {
					return os.ReadFile("/bin/sh") // which loads libraries
				}
				return []byte("#!/usr/bin/grange hook\nhtcondor wrapper --metal asked --\n"), nil
			}
		},
		"STARTER_RLIMIT_AS = 536870912": func(c Config, _ *Look) { c["STARTER_RLIMIT_AS"] = "536870912" },
		"STARTER_RLIMIT_AS = TARGET.M":  func(c Config, _ *Look) { c["STARTER_RLIMIT_AS"] = "TARGET.MemoryUsage" },
		"the agent grants VMs 4096M": func(c Config, l *Look) {
			c["MEMORY"], l.Grants = "8000", 4*farm.GiB
		},
		"has 7000M for jobs": func(c Config, l *Look) {
			delete(c, "MEMORY")
			c["DETECTED_MEMORY"], c["RESERVED_MEMORY"], l.Grants = "8000", "1000", 4*farm.GiB
		},
		"HISTORY is empty":           func(c Config, _ *Look) { c["HISTORY"] = "" },
		"BASE_CGROUP is empty":       func(c Config, _ *Look) { c["BASE_CGROUP"] = "" },
		"CGROUP_MEMORY_LIMIT_POLICY": func(c Config, _ *Look) { c["CGROUP_MEMORY_LIMIT_POLICY"] = "none" },
		"USE_PID_NAMESPACES":         func(c Config, _ *Look) { c["USE_PID_NAMESPACES"] = "True" },
		"a prepare hook keeps": func(c Config,
			_ *Look) {
			c["OWN_HOOK_PREPARE_JOB"] = "/usr/libexec/grange/condor-wrapper"
		},
		"no job transform":             func(c Config, _ *Look) { c["JOB_TRANSFORM_NAMES"] = "" },
		"others than root can change":  func(_ Config, l *Look) { l.Stat = widely(l.Stat, 0o777) },
		"not a program that everybody": func(_ Config, l *Look) { l.Stat = widely(l.Stat, 0o700) },
		"no job transform of grange":   func(c Config, _ *Look) { c["JOB_TRANSFORM_GRANGE"] = "" },
	} {
		c, l := golden(t), look()
		change(c, &l)
		found := c.Check(l)
		text := func(f batch.Finding) string { return f.Found + ": " + f.Why }
		if len(found) == 0 || !strings.Contains(text(found[0]), says) &&
			!strings.Contains(text(found[len(found)-1]), says) {
			t.Errorf("%s: %+v", says, found)
		}
		for _, f := range found {
			if f.ID == "" || f.Do == "" || f.Why == "" {
				t.Errorf("%+v: nothing to do, or no reason", f)
			}
		}
	}
	if _, err := ParseConfig("Not defined\n"); err == nil {
		t.Error("what is no configuration was read")
	}
	if image, err := os.ReadFile("/proc/self/exe"); err != nil || loadsLibraries([]byte("#!/bin/sh\n")) {
		t.Errorf("a script loads libraries, or %v", err)
	} else if file, err := elf.NewFile(bytes.NewReader(image)); err != nil ||
		loadsLibraries(image) != (file.Section(".interp") != nil) {
		t.Errorf("this test loads libraries: %t, %v", loadsLibraries(image), err)
	}
}

// TestErrorsSayItOnce: farm.Error adds what it wraps to its message.
func TestErrorsSayItOnce(t *testing.T) {
	_, err := ReadConfig(t.Context())
	if err == nil { // a machine with HTCondor
		return
	}
	if inner := errors.Unwrap(err); inner == nil || strings.Count(err.Error(), inner.Error()) != 1 {
		t.Errorf("%v", err)
	}
}

type changed struct {
	fs.FileInfo
	mode fs.FileMode
}

func (c changed) Mode() fs.FileMode { return c.FileInfo.Mode()&fs.ModeType | c.mode }

func widely(stat func(string) (fs.FileInfo, error), mode fs.FileMode) func(string) (fs.FileInfo, error) {
	return func(path string) (fs.FileInfo, error) {
		info, err := stat(path)
		if err != nil || info.IsDir() {
			return info, err
		}
		return changed{info, mode}, nil
	}
}

func TestFiles(t *testing.T) {
	for _, metal := range htcondor.Metals {
		s := Standard()
		s.Metal = metal
		files := s.ExecuteFiles("/etc/condor/config.d")
		if len(files) != 4 {
			t.Errorf("%d files", len(files))
		}
		shells := map[htcondor.Metal]string{htcondor.MetalNever: "False",
			htcondor.MetalAsked:   "TARGET.WantVM =?= False",
			htcondor.MetalDefault: "TARGET.WantVM =!= True"}[metal]
		if !strings.Contains(files[0].Text, "\nENABLE_SSH_TO_JOB = "+shells+"\n") {
			t.Errorf("--metal %s: shells beside jobs: %s", metal, files[0].Text)
		}
		never := metal == htcondor.MetalNever
		if off := strings.Contains(files[0].Text,
			"\nSTART_LOCAL_UNIVERSE = False\nSTART_SCHEDULER_UNIVERSE = False\n"); off != never {
			t.Errorf("--metal %s: the schedd starts no jobs beside itself: %t", metal, off)
		}
		for _, name := range beside {
			if text := files[0].Text; !strings.Contains(text, "unparse("+name+`) =?= ""`) ||
				!strings.Contains(text, "TARGET."+name+" =?= undefined") {
				t.Errorf("--metal %s: jobs with %s are not kept away", metal, name)
			}
		}
		for _, f := range files {
			if f.Program != strings.HasPrefix(f.Path, "/usr/libexec/grange/") || strings.Contains(f.Text, "%!") {
				t.Errorf("%s: %s", f.Path, f.Text)
			}
			if f.Program && (!strings.HasPrefix(f.Text, "#!/usr/bin/grange hook\n") ||
				!strings.Contains(f.Text, "--metal "+string(metal))) {
				t.Errorf("%s: %s", f.Path, f.Text)
			}
		}
		if strings.Contains(files[0].Text, "PREPARE_JOB") {
			t.Error("a prepare hook that nobody asked for: jobs would be in no control group")
		}
	}
	s := Standard()
	s.Prepare = true
	if files := s.ExecuteFiles("/x"); len(files) != 5 ||
		!strings.Contains(files[0].Text, "GRANGE_HOOK_PREPARE_JOB = /usr/libexec/grange/condor-prepare") {
		t.Errorf("with a prepare hook: %+v", files)
	}
	if f := s.AccessFile("/x"); strings.Contains(f.Text, "%!") || !strings.Contains(f.Text, "ExitCode =?= 199") {
		t.Error(f.Text)
	}
	for path, ok := range map[string]bool{"/usr/libexec/grange": true, "relative": false, "/with blank": false,
		"/$(x)": false, "": false} {
		if err := FitPath(path); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}
