package setup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
)

// adder notes a finding under the name of the setting.
type adder func(level batch.Level, setting, found, why, do string)

// Check returns what is wrong with a queue whose jobs are to run in VMs, the worst first. Nothing: it is sound.
func Check(ctx context.Context, c *gridengine.Cell, s Setup) ([]batch.Finding, error) {
	text, err := c.Qconf(ctx, "-sq", s.Queue)
	if err != nil {
		return nil, err
	}
	queue := gridengine.ParseSettings(text).Values
	var all []batch.Finding
	add := func(level batch.Level, setting, found, why, do string) {
		all = append(all, batch.Finding{ID: strings.ReplaceAll(strings.ToLower(setting), "_", "-"), Level: level,
			Found: found, Why: why, Do: do})
	}
	set := "grange gridengine install --queue " + s.Queue
	switch starter := queue["starter_method"]; {
	case gridengine.None(starter):
		add(batch.Broken, "starter_method", "queue "+s.Queue+" has no starter_method", "its jobs run on the host", set)
	case strings.Contains(starter, "["):
		add(batch.Broken, "starter_method", "starter_method differs by host: "+starter,
			"on hosts without it jobs run on the host",
			"set one value, or list hosts that have no grange in another queue")
	case filepath.Base(starter) != StarterLink:
		add(batch.Broken, "starter_method", "starter_method is "+starter, "it is not grange's "+StarterLink, set)
	default:
		if why := unsafe(starter); why != "" {
			add(batch.Broken, "starter_method", "starter_method "+starter+": "+why,
				"Grid Engine starts it as each job's user, and puts jobs into state Eqw where it is missing", set)
		}
	}
	if strings.Contains(queue["qtype"], "INTERACTIVE") {
		add(batch.Broken, "qtype", "queue "+s.Queue+" is of type "+queue["qtype"],
			"Grid Engine starts qlogin, qsh and qrsh without a command on the host, without the starter method", set)
	}
	for _, method := range []string{"suspend", "resume"} {
		if v := queue[method+"_method"]; !strings.Contains(v, " gridengine "+method+" ") {
			add(batch.Warning, method+"_method", method+"_method is "+v,
				"Grid Engine then sends its signal to QEMU as well as to the wrapper: the VM is stopped hard, and "+
					"its guest misses time", set)
		}
	}
	if v := queue["terminate_method"]; !strings.Contains(v, " gridengine terminate ") {
		add(batch.Warning, "terminate_method", "terminate_method is "+v,
			"Grid Engine kills at once: no trap of a job runs at qdel and at h_rt", set)
	}
	if !strings.EqualFold(queue["rerun"], "TRUE") {
		add(batch.Warning, "rerun", "rerun is "+queue["rerun"],
			"a job whose VM could not be started ends as failed instead of going to another host", set)
	}
	if queue["s_rt"] != "INFINITY" && queue["h_rt"] != "INFINITY" {
		add(batch.Warning, "h_rt", "both s_rt ("+queue["s_rt"]+") and h_rt ("+queue["h_rt"]+") are set",
			"Grid Engine 8.1.9 then does not enforce h_rt, for jobs on the host too", "leave s_rt at INFINITY")
	}
	conf, err := effective(ctx, c, s.Host)
	if err != nil {
		return nil, err
	}
	if err := checkAround(ctx, c, s, queue, conf, add); err != nil {
		return nil, err
	}
	if gridengine.None(conf["gid_range"]) {
		add(batch.Broken, "gid_range", "gid_range is not set",
			"Grid Engine knows no process of a job: a VM would neither be accounted nor limited nor killed",
			"qconf -mconf: gid_range 20000-20100")
	}
	checkParams(conf, add)
	checkRoom(queue, conf, add)
	if s.Host != "" {
		if !strings.Contains(conf["load_sensor"], SensorLink) {
			add(batch.Warning, "load_sensor", "host "+s.Host+" has no load sensor of grange",
				"jobs cannot ask for vmslots and vmimages", set+" --host "+s.Host)
		}
		for _, key := range []string{"qlogin_daemon", "rlogin_daemon"} {
			if conf[key] != noLogins && !s.Logins {
				add(batch.Broken, key, "host "+s.Host+": "+key+" is "+conf[key],
					"`qlogin -now no` runs a shell on the host, also in a queue of type BATCH", set+" --host "+s.Host)
			}
		}
		if v := conf["shepherd_cmd"]; !gridengine.None(v) && filepath.Base(v) == ShepherdLink {
			if why := unsafe(v); why != "" {
				add(batch.Broken, "shepherd_cmd", "shepherd_cmd "+v+": "+why,
					"no job starts on the host, and root runs it", set)
			}
		}
	}
	if text, err = c.Qconf(ctx, "-sc"); err != nil {
		return nil, err
	}
	for name := range complexes {
		if !slices.Contains(firstWords(text), name) {
			add(batch.Warning, name, "no complex "+name, "jobs cannot ask for it", set)
		}
	}
	batch.SortFindings(all)
	return all, nil
}

// effective is the cell's configuration with what the host has of its own.
func effective(ctx context.Context, c *gridengine.Cell, host string) (map[string]string, error) {
	text, err := c.Qconf(ctx, "-sconf")
	if err != nil {
		return nil, err
	}
	conf := gridengine.ParseSettings(text).Values
	if host == "" {
		return conf, nil
	}
	text, err = c.Qconf(ctx, "-sconf", host)
	if farm.IsCode(err, farm.CodeQconf) {
		return conf, nil // it has none of its own
	} else if err != nil {
		return nil, err
	}
	for key, value := range gridengine.ParseSettings(text).Values {
		conf[key] = value
	}
	return conf, nil
}

// unsafe returns what is wrong with a program that Grid Engine starts; "" where nothing is.
func unsafe(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err.Error()
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "no program"
	case info.Mode().Perm()&0o022 != 0:
		return "others than its owner may write it"
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
		return fmt.Sprintf("it belongs to user %d", owner.Uid)
	}
	return ""
}
