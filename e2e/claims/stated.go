package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/slurm/worker"
	"github.com/grange-project/grange/internal/cli"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farmfile"
)

// statement is a value that a page states in a sentence: what stands in the place of VALUE.
type statement struct {
	page, sentence string
	value          any
}

// statements are those whose value the program has. A sentence that is not on its page any more has no place here.
func statements(root string) ([]statement, error) {
	agent, err := config.ParseAgent(nil, "no file")
	if err != nil {
		return nil, err
	}
	server, err := config.ParseServer(nil, "no file")
	if err != nil {
		return nil, err
	}
	worker, err := worker.ParseConfig(nil, "no file", "/run/grange/agent.sock")
	if err != nil {
		return nil, err
	}
	farm, err := farmfile.Parse([]byte("[cells.a]\n"), "a farm")
	if err != nil {
		return nil, err
	}
	plugin, err := pluginDefaults(root)
	wait := agent.Batch.WaitTimeout
	return []statement{
		{"docs/guide/exec.md", "`[batch] wait_timeout` (default VALUE)", wait},
		{"docs/guide/slurm.md", "`[batch] wait_timeout`, VALUE, then", wait},
		{"docs/guide/hosts.md", "reported for VALUE (`silent_after`)", server.SilentAfter},
		{"docs/guide/hosts.md", "has not reported for VALUE is *silent*", server.SilentAfter},
		{"docs/guide/hosts.md", "This release takes all from VALUE on", fleet.OldestCapability},
		{"docs/internals/crash.md", "are refused, which is VALUE until", fleet.OldestCapability},
		{"docs/guide/server.md", "batch systems of cells](batch.md) have them (`VALUE`)", server.Usage.HostJobs},
		{"docs/guide/server.md", "who sees the usage of their jobs (`VALUE`)", server.Usage.SameNames},
		{"docs/guide/tuning.md", "`--fail-on` (default `VALUE`", defaultOf("tune audit", "fail-on")},
		{"docs/guide/tuning.md", "| fault | jobs fail or become several times slower | VALUE |", app.ExitFault},
		{"docs/guide/tuning.md", "| warning | costs throughput, or will under load | VALUE |", app.ExitWarning},
		{"docs/guide/tuning.md", "| advice | small, or true for some loads only | VALUE |", app.ExitAdvice},
		{"docs/guide/exec.md", "| VALUE | no VM was started and nothing ran", batch.ExitNotStarted},
		{"docs/guide/exec.md", "| VALUE | the VM ended while the job ran; the job may", batch.ExitVMLost},
		{"docs/guide/exec.md", "| VALUE | no VM was started; the batch system should not", batch.ExitNever},
		{"docs/guide/users.md", "| VALUE (`71:0` of a script)", batch.ExitNotStarted},
		{"docs/guide/users.md", "| VALUE (`69:0`)", batch.ExitNever},
		{"docs/guide/users.md", "| VALUE (`70:0`)", batch.ExitVMLost},

		{"docs/guide/slurm-elastic.md", "| `scontrol` | `VALUE` |", worker.Scontrol},
		{"docs/guide/slurm-elastic.md", "| `wait_timeout` | `VALUE` |", short(worker.WaitTimeout)},
		{"docs/guide/slurm-elastic.md", "| `boot_timeout` | `VALUE` |", short(worker.BootTimeout)},
		{"docs/guide/slurm-elastic.md", "| `restarts` | `VALUE` |", worker.Restarts},
		{"docs/guide/slurm-elastic.md", "| `warm` | `VALUE` |", worker.Warm},
		{"docs/guide/slurm.md", "| `wrapper=` | `VALUE` |", plugin["wrapper"]},
		{"docs/guide/slurm.md", "| `socket=` | `VALUE` |", plugin["socket"]},
		{"docs/guide/slurm.md", "| `min_uid=` | VALUE |", plugin["min_uid"]},
		{"docs/guide/slurm.md", "| `requeues=` | VALUE |", plugin["requeues"]},
		{"docs/guide/cells.md", "1 to 10, default VALUE |", farm.Cells[0].Overcommit},
	}, err
}

var (
	pluginConf  = regexp.MustCompile(`(?m)^\} conf = \{(.*)\};$`)
	pluginField = regexp.MustCompile(`\.([a-z_]+) = "?([^",]+)`)
)

// pluginDefaults are those of Slurm's plug-in, which is in C.
func pluginDefaults(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "slurm/spank/grange_spank.c"))
	all := map[string]string{}
	for _, conf := range pluginConf.FindAllStringSubmatch(string(text), -1) {
		for _, m := range pluginField.FindAllStringSubmatch(conf[1], -1) {
			all[m[1]] = m[2]
		}
	}
	return all, err
}

// short is a duration as configurations have it: 5m, not 5m0s.
func short(d time.Duration) string {
	if text, ok := strings.CutSuffix(d.String(), "m0s"); ok {
		return text + "m"
	}
	return d.String()
}

// defaultOf is the default of a flag.
func defaultOf(command, flag string) string {
	c, _, err := cli.New(nil).Find(strings.Fields(command))
	if err != nil || c.Flag(flag) == nil {
		return "no flag"
	}
	return c.Flag(flag).DefValue
}

// check says what is wrong with a statement: "" when nothing is.
func (s statement) check(text string) string {
	before, after, _ := strings.Cut(s.sentence, "VALUE")
	// a sentence may go on in the next line
	quote := func(part string) string { return strings.ReplaceAll(regexp.QuoteMeta(part), " ", `\s+`) }
	value := `(\S+(?: (?:second|minute|hour|day)s?)?)`
	m := regexp.MustCompile(quote(before) + value + quote(after)).FindStringSubmatch(text)
	switch {
	case m == nil:
		return fmt.Sprintf("the page has no sentence like %q any more", s.sentence)
	case m[1] != words(s.value):
		return fmt.Sprintf("%q: the page says %s, the program %s", s.sentence, m[1], words(s.value))
	}
	return ""
}

// words is a value as pages write it.
func words(value any) string {
	d, ok := value.(time.Duration)
	switch {
	case !ok:
		return fmt.Sprint(value)
	case d%time.Hour == 0:
		return fmt.Sprint(int(d/time.Hour), " hours")
	case d%time.Minute == 0:
		return fmt.Sprint(int(d/time.Minute), " minutes")
	}
	return fmt.Sprint(int(d/time.Second), " seconds")
}

func checkStatements(root string) (n int, problems []problem, err error) {
	all, err := statements(root)
	for _, s := range all {
		text, err := os.ReadFile(filepath.Join(root, s.page))
		if err != nil {
			return n, nil, err
		}
		if wrong := s.check(string(text)); wrong != "" {
			problems = append(problems, problem{s.page, 1, wrong})
		}
	}
	return len(all), problems, err
}
