package steps

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/lazyregexp"
)

// option is one that a VM may give srun. What could run a program, read or write a file, or reach another job is none
// of these.
type option struct {
	name  string
	short byte               // 0: none
	value *lazyregexp.Regexp // nil: it has none
	maybe bool               // its value may be missing
}

// mostValue is how long a value may be. Their forms do not count: each start of grange would pay for compiling that.
const mostValue = 512

var (
	count    = lazyregexp.New(`^[0-9]{1,9}$`)
	counts   = lazyregexp.New(`^[0-9]{1,9}(-[0-9]{1,9})?$`)
	duration = lazyregexp.New(`^[0-9:-]+$`)
	memory   = lazyregexp.New(`^[0-9]{1,12}[KMGTkmgt]?[Bb]?$`)
	words    = lazyregexp.New(`^[A-Za-z0-9_.,:=*+\[\]-]+$`)
	label    = lazyregexp.New(`^[A-Za-z0-9_.,:=+@ -]+$`)
	standard = lazyregexp.New(`^(none|all)$`) // no file of the host; a number of no task would be one too
)

// options are in the words of srun of Slurm 22.05 to 24.11: https://slurm.schedmd.com/srun.html
var options = []option{
	{"ntasks", 'n', count, false},
	{"nodes", 'N', counts, false},
	{"cpus-per-task", 'c', count, false},
	{"ntasks-per-node", 0, count, false},
	{"threads-per-core", 0, count, false},
	{"mem", 0, memory, false},
	{"mem-per-cpu", 0, memory, false},
	{"time", 't', duration, false},
	{"job-name", 'J', label, false},
	{"cpu-bind", 0, words, false},
	{"distribution", 'm', words, false},
	{"hint", 0, words, false},
	{"gres", 0, words, false},
	{"relative", 'r', count, false},
	{"nodelist", 'w', words, false},
	{"exclude", 'x', words, false},
	{"wait", 'W', count, false},
	{"input", 'i', standard, false},
	{"output", 'o', standard, false},
	{"error", 'e', standard, false},
	{"mpi", 0, lazyregexp.New(`^none$`), false},
	{"kill-on-bad-exit", 'K', lazyregexp.New(`^[01]$`), true},
	{"exact", 0, nil, false},
	{"exclusive", 0, nil, false},
	{"overlap", 0, nil, false},
	{"overcommit", 'O', nil, false},
	{"label", 'l', nil, false},
	{"unbuffered", 'u', nil, false},
	{"quiet", 'Q', nil, false},
	{"preserve-env", 'E', nil, false},
}

// split takes a command line of srun apart: options that it may have, each in one word, and the command. Like srun it
// stops at the first word that is no option, and knows no abbreviations.
func split(args []string) (allowed, command []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			return allowed, args[1:], nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			break
		}
		args = args[1:]
		o, value, given, rest, err := take(arg)
		if err != nil {
			return nil, nil, err
		}
		if rest != "" { // -lu: several in one word
			args = append([]string{rest}, args...)
		}
		switch {
		case o.value == nil && given:
			return nil, nil, fmt.Errorf("--%s has no value", o.name)
		case o.value != nil && !given && !o.maybe:
			if len(args) == 0 {
				return nil, nil, fmt.Errorf("--%s needs a value", o.name)
			}
			value, given, args = args[0], true, args[1:]
		}
		word := "--" + o.name
		if given {
			if len(value) > mostValue || !o.value.MatchString(value) {
				return nil, nil, fmt.Errorf("--%s %q is not possible from inside a VM", o.name, value)
			}
			word += "=" + value
		}
		allowed = append(allowed, word)
	}
	return allowed, args, nil
}

// take recognises the option at the start of one word.
func take(arg string) (o option, value string, given bool, rest string, err error) {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		name, value, given := strings.Cut(long, "=")
		for _, o := range options {
			if o.name == name {
				return o, value, given, "", nil
			}
		}
		return o, "", false, "", fmt.Errorf("--%s is not possible from inside a VM", name)
	}
	for _, o := range options {
		if o.short != arg[1] || o.short == 0 {
			continue
		}
		if o.value == nil && len(arg) > 2 {
			return o, "", false, "-" + arg[2:], nil
		}
		return o, strings.TrimPrefix(arg[2:], "="), len(arg) > 2, "", nil
	}
	return o, "", false, "", fmt.Errorf("-%c is not possible from inside a VM", arg[1])
}

// variables are those that sbatch sets as defaults of srun; others of the VM's environment do not reach the host's
// srun.
var variables = map[string]*lazyregexp.Regexp{
	"SLURM_NTASKS": count, "SLURM_NPROCS": count, "SLURM_CPUS_PER_TASK": count, "SRUN_CPUS_PER_TASK": count,
	"SLURM_NNODES":        counts,
	"SLURM_JOB_NUM_NODES": counts, "SLURM_NTASKS_PER_NODE": count, "SLURM_MEM_PER_CPU": memory,
	"SLURM_MEM_PER_NODE":     memory,
	"SLURM_THREADS_PER_CORE": count,
}

// defaults are the variables of env that may be handed on.
func defaults(env []string) []string {
	var out []string
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if form := variables[name]; form != nil && len(value) <= mostValue && form.MatchString(value) {
			out = append(out, kv)
		}
	}
	return out
}
