package setup

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Hook is the hook's program, for `qmgr -c "import hook"`.
//
//go:embed launch.py
var Hook []byte

// Staging is a program for PBS_SCP in pbs.conf: scp that reads no configuration of the job's user.
const (
	StagingName = "scp"
	Staging     = "#!/bin/sh\n# grange: PBS copies files of jobs as their users; ~/.ssh/config may name programs, " +
		"which would run on this host.\nexec /usr/bin/scp -F none \"$@\"\n"
	stagingPath = "/usr/libexec/grange/" + StagingName
)

// HookName is what the hook is called in the server.
const HookName = "grange"

// Setup is what an installation chooses.
type Setup struct {
	Grange string   // path of our program on the hosts
	Socket string   // of the agent; "": the usual one, which the wrapper takes without a word
	Queues []string // whose jobs run in VMs; none: all
	// Requeues is how often a job is queued again whose VM was not started.
	Requeues int
	Dir      string // where the two files are, on the server's host
}

// wrapper is the command that stands in front of a job's program.
func (s Setup) wrapper() []string {
	words := []string{s.Grange, "exec", "--batch", string(farm.PBS)}
	if s.Socket != "" {
		words = append(words, "--socket", s.Socket)
	}
	return words
}

// Config is the hook's configuration, for `import hook NAME application/x-config`.
func (s Setup) Config() ([]byte, error) {
	if !filepath.IsAbs(s.Grange) {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("the wrapper %q is not an absolute path", s.Grange), Hint: "--grange /usr/bin/grange"}
	}
	c := struct {
		Wrapper  []string `json:"wrapper"`
		Queues   []string `json:"queues,omitempty"`
		Requeues int      `json:"requeues"`
	}{s.wrapper(), s.Queues, s.Requeues}
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// Commands are what an administrator tells the server, once; each is one line for qmgr. fail_action is for a hook that
// fails: its host takes no more jobs until somebody looked. default_chunk keeps jobs of the queues from hosts whose
// hook has not said that it is there: a host that has no hook would run them as they are.
func (s Setup) Commands() []string {
	lines := []string{
		"create resource grange type=boolean,flag=h",
		"create resource grange_image type=string",
		"create hook " + HookName,
		"set hook " + HookName +
			` event = "execjob_begin,execjob_launch,execjob_epilogue,execjob_end,exechost_startup,exechost_periodic"`,
		"set hook " + HookName + " freq = 60",
		"set hook " + HookName + " order = 110", // behind the cgroup hook, which has 100: its groups must be there
		"set hook " + HookName + " alarm = 30",
		"set hook " + HookName + " fail_action = offline_vnodes",
		"import hook " + HookName + " application/x-python default " + filepath.Join(s.Dir, "launch.py"),
		"import hook " + HookName + " application/x-config default " + filepath.Join(s.Dir, "grange.json"),
		"set hook " + HookName + " enabled = true",
	}
	for _, q := range s.Queues {
		lines = append(lines, "set queue "+q+" default_chunk.grange = true")
	}
	if len(s.Queues) == 0 {
		lines = append(lines, "set server default_chunk.grange = true")
	}
	return lines
}

// Script is Commands for a shell.
func (s Setup) Script() string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# Puts grange's hook into this PBS server. Run it as root on the server's host.\nset " +
		"-e\n")
	for _, line := range s.Commands() {
		fmt.Fprintf(&b, "qmgr -c '%s'\n", line)
	}
	b.WriteString("# sched_config: the scheduler must look at grange, so add it to `resources:` and send pbs_sched a " +
		"HUP.\n")
	return b.String()
}
