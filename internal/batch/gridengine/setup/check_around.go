package setup

import (
	"context"
	"errors"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
)

// checkAround looks for what Grid Engine runs as the job's user on the host beside the starter method. It is the
// site's, but it has the job's environment: LD_PRELOAD there names code of the user's.
func checkAround(ctx context.Context, c *gridengine.Cell, s Setup, queue, conf map[string]string, add adder) error {
	const why = "it runs on the host as the job's user, who names code for it by LD_PRELOAD in the job's environment"
	for _, key := range []string{"prolog", "epilog"} {
		for _, of := range []struct{ where, value string }{{"queue " + s.Queue, queue[key]},
			{"the configuration", conf[key]}} {
			for _, v := range byHost(of.value) {
				checkProgramUser(ctx, key, of.where, v, why, add)
			}
		}
	}
	for _, name := range strings.FieldsFunc(queue["pe_list"], func(r rune) bool { return r == ' ' || r == ',' }) {
		text, err := c.Qconf(ctx, "-sp", name)
		if gridengine.None(name) || farm.IsCode(err, farm.CodeQconf) {
			continue // a name that is no longer one
		} else if err != nil {
			return err
		}
		pe := gridengine.ParseSettings(text).Values
		for _, key := range []string{"start_proc_args", "stop_proc_args"} {
			if v := pe[key]; !gridengine.None(v) && !strings.HasPrefix(v, "root@") {
				add(batch.Broken, key, "parallel environment "+name+": "+key+" is "+v, why, "qconf -mp "+name+": "+key+" NONE")
			}
		}
		if strings.EqualFold(pe["control_slaves"], "TRUE") {
			add(batch.Warning, "control_slaves", "parallel environment "+name+": control_slaves is TRUE",
				"qrsh -inherit may start tasks of such a job on its hosts, and the starter method of 8.1.9 was not "+
					"tried for them", "qconf -mp "+name+": control_slaves FALSE")
		}
	}
	return nil
}

// byHost splits a value that differs by host, "NONE,[@group=/a],[host=root@/b]", into its values.
func byHost(value string) []string {
	first, rest, differs := strings.Cut(value, ",[")
	all := []string{strings.TrimSpace(first)}
	for differs {
		var one string
		one, rest, differs = strings.Cut(rest, ",[")
		_, one, _ = strings.Cut(strings.TrimSuffix(strings.TrimSpace(one), "]"), "=")
		all = append(all, one)
	}
	return all
}

// checkProgramUser looks at the user of a prolog or epilog: "user@" before its path, or the job's user. Of the job's
// environment Grid Engine removes LD_PRELOAD and its like for other users than the job's (sge_conf(5), SECURITY).
func checkProgramUser(ctx context.Context, key, where, v, why string, add adder) {
	if gridengine.None(v) {
		return
	}
	found := where + ": " + key + " is " + v
	words := strings.Fields(v)
	user, path, other := strings.Cut(words[0], "@")
	switch {
	case !other || user == "" || strings.Contains(user, "/"):
		add(batch.Broken, key, found, why, key+" root@"+v+", where it may run as root; else leave it out")
	case user == "root":
	default:
		if _, err := names.Host().Named(ctx, user); errors.Is(err, names.ErrUnknown) {
			add(batch.Broken, key, found+", and there is no user "+user, "no job starts on this host",
				key+" root@"+path+", or another user's")
		}
	}
}
