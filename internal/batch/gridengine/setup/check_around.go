package setup

import (
	"context"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
)

// checkAround looks for what Grid Engine runs as the job's user on the host beside the starter method. It is the
// site's, but it has the job's environment: LD_PRELOAD there names code of the user's.
func checkAround(ctx context.Context, c *gridengine.Cell, s Setup, queue, conf map[string]string, add adder) error {
	const why = "it runs on the host as the job's user, who names code for it by LD_PRELOAD in the job's environment"
	for _, key := range []string{"prolog", "epilog"} {
		for where, v := range map[string]string{"queue " + s.Queue: queue[key], "the configuration": conf[key]} {
			if !gridengine.None(v) && !strings.HasPrefix(v, "root@") {
				add(batch.Broken, key, where+": "+key+" is "+v, why,
					key+" root@"+strings.TrimSpace(
						v[strings.LastIndex(v, "@")+1:])+", where it may run as root; else leave it out")
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
