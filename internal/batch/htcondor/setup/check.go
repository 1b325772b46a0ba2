package setup

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Config is HTCondor's configuration as it reads it itself. Names are in upper case.
type Config map[string]string

// ReadConfig asks this host's HTCondor.
func ReadConfig(ctx context.Context) (Config, error) {
	out, err := program.Start(ctx, program.Call{Path: "condor_config_val", Args: []string{"-dump", "-expand"}})
	if err != nil {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeCondorConfig,
			Message: "HTCondor's configuration cannot be read", Err: err,
			Hint: "is HTCondor installed on this host? See condor_config_val -dump"}
	}
	return ParseConfig(string(out))
}

// ParseConfig reads what condor_config_val -dump prints: NAME = value, one a line.
func ParseConfig(text string) (Config, error) {
	c := Config{}
	block, end := "", "" // NAME @=TAG, lines, @TAG
	for line := range strings.Lines(text) {
		if end != "" {
			if strings.TrimSpace(line) == end {
				end = ""
			} else {
				c[block] += line
			}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		if name, tag, ok := strings.Cut(line, " @="); ok && !strings.Contains(name, "=") {
			block, end = strings.ToUpper(strings.TrimSpace(name)), "@"+strings.TrimSpace(tag)
			c[block] = ""
			continue
		}
		if name, value, ok := strings.Cut(line, "="); ok && !strings.ContainsAny(strings.TrimSpace(name), " \t") {
			c[strings.ToUpper(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	if len(c) == 0 {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeCondorConfig,
			Message: "not a configuration of HTCondor", Hint: "condor_config_val -dump -expand prints it"}
	}
	return c, nil
}

// Runs reports whether the host's master starts the daemon.
func (c Config) Runs(daemon string) bool {
	return slices.Contains(words(c["DAEMON_LIST"]), daemon)
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// findings are what is wrong.
type findings []batch.Finding

// add notes what is wrong with a setting, why it matters and what to do.
func (all *findings) add(setting, do, found, why string) {
	*all = append(*all, batch.Finding{ID: strings.ReplaceAll(strings.ToLower(setting), "_", "-"), Level: batch.Broken,
		Found: found, Why: why, Do: do})
}

// Look is what is checked, and with what.
type Look struct {
	Execute, Access bool
	Grants          farm.Bytes // the most memory that the agent has for a VM; 0: not known
	Stat            func(path string) (fs.FileInfo, error)
	Read            func(path string) ([]byte, error)
}

// Check returns what is wrong.
func (c Config) Check(look Look) []batch.Finding {
	var all findings
	if look.Execute {
		c.checkExecute(look, &all)
	}
	if look.Access {
		c.checkAccess(&all)
	}
	return all
}

// install is what mends most of an execution point's configuration.
const install = "grange htcondor install --execute, then condor_reconfig"

func (c Config) checkExecute(look Look, all *findings) {
	wrapper := c["USER_JOB_WRAPPER"]
	switch {
	case wrapper == "":
		all.add("USER_JOB_WRAPPER", install, "USER_JOB_WRAPPER is not set", "every job runs on the host itself")
	default:
		c.checkProgram(look, "USER_JOB_WRAPPER", wrapper, all)
		if text, err := look.Read(wrapper); err == nil && !strings.Contains(string(text), "htcondor wrapper") &&
			!strings.Contains(string(text), "exec --batch htcondor") {
			all.add("USER_JOB_WRAPPER", install, "USER_JOB_WRAPPER = "+wrapper+" is not grange's",
				"jobs run as that program says")
		}
	}
	for name, hook := range c {
		if strings.HasSuffix(name, "_HOOK_PREPARE_JOB") && hook != "" {
			all.add(name, "leave "+name+" out, if you can", name+" = "+hook,
				"a prepare hook keeps HTCondor 23.9 from putting jobs into control groups: no memory limit, and "+
					"records of the wrapper instead of the VM")
			c.checkProgram(look, name, hook, all)
		}
	}
	cron := ""
	for _, name := range words(c["STARTD_CRON_JOBLIST"]) {
		if strings.EqualFold(name, "GRANGE") {
			cron = c["STARTD_CRON_GRANGE_EXECUTABLE"]
		}
	}
	if cron == "" {
		all.add("STARTD_CRON_JOBLIST", install, "the startd does not publish GrangeReady and GrangeImages",
			"jobs are sent to hosts without an agent or their image")
	} else {
		c.checkProgram(look, "STARTD_CRON_GRANGE_EXECUTABLE", cron, all)
	}
	switch start := c["START"]; {
	case !strings.Contains(start, "GrangeReady"):
		all.add("START", "put grange's file behind the one that sets START",
			"START = "+start+" does not look at GrangeReady", "jobs are sent to hosts without an agent")
	case !strings.Contains(start, whole()) || !strings.Contains(start, absent()):
		all.add("START", install, "START lets jobs come with PreCmd, containers and the like",
			"they start more on the host than what the wrapper takes the place of")
	}
	if v, set := c["BASE_CGROUP"]; set && v == "" {
		all.add("BASE_CGROUP", "BASE_CGROUP = htcondor", "BASE_CGROUP is empty",
			"HTCondor limits no memory, its records have the wrapper's use and not the VM's, and suspending works only "+
				"through the wrapper's heartbeats")
	}
	if p := c["CGROUP_MEMORY_LIMIT_POLICY"]; strings.EqualFold(p, "none") {
		all.add("CGROUP_MEMORY_LIMIT_POLICY", "CGROUP_MEMORY_LIMIT_POLICY = hard", "CGROUP_MEMORY_LIMIT_POLICY is "+p,
			"a job beyond its memory takes that of others")
	}
	if truth(c["USE_PID_NAMESPACES"]) {
		all.add("USE_PID_NAMESPACES", "USE_PID_NAMESPACES = False", "USE_PID_NAMESPACES is on",
			"the agent cannot see condor_starter above a job, and refuses it")
	}
	c.checkLimits(look, all)
	c.checkBesides(look, wrapper, all)
}

// checkBesides looks for ways by which a job, or a user, gets more of the host than a virtual machine.
func (c Config) checkBesides(look Look, wrapper string, all *findings) {
	if users := c["VALID_COD_USERS"]; users != "" {
		all.add("VALID_COD_USERS", "take VALID_COD_USERS out", "VALID_COD_USERS = "+users,
			"they start programs on the host that are not jobs")
	}
	for _, name := range []string{"SINGULARITY_JOB", "USE_DEFAULT_CONTAINER"} {
		if v := c[name]; v != "" && !strings.EqualFold(v, "false") && v != "0" {
			all.add(name, name+" = False", name+" = "+v,
				"jobs are put into containers on the host, and the wrapper with them")
		}
	}
	if wrapper == "" {
		return
	}
	text, err := look.Read(wrapper)
	if err != nil {
		return
	}
	never := strings.Contains(string(text), "--metal never")
	switch ssh := c["ENABLE_SSH_TO_JOB"]; {
	case never && !strings.EqualFold(ssh, "false"):
		all.add("ENABLE_SSH_TO_JOB", "ENABLE_SSH_TO_JOB = False", "ENABLE_SSH_TO_JOB is not off",
			"no job is to run on the host, and condor_ssh_to_job opens a shell there")
	case !strings.EqualFold(ssh, "false") && !strings.Contains(ssh, "WantVM"):
		all.add("ENABLE_SSH_TO_JOB", install, "ENABLE_SSH_TO_JOB = "+ssh,
			"condor_ssh_to_job opens a shell on the host beside jobs in virtual machines")
	}
	for _, name := range []string{"START_LOCAL_UNIVERSE", "START_SCHEDULER_UNIVERSE"} {
		if never && c.Runs("SCHEDD") && !strings.EqualFold(c[name], "false") {
			all.add(name, name+" = False", name+" = "+c[name],
				"no job is to run on the host, and the schedd on it starts some beside itself")
		}
	}
	// The wrapper's interpreter is the first program of a job, and has the environment that the user wrote.
	line, _, _ := strings.Cut(string(text), "\n")
	if program, _, _ := strings.Cut(strings.TrimPrefix(line, "#!"), " "); strings.HasPrefix(line, "#!/") {
		if image, err := look.Read(program); err == nil && loadsLibraries(image) {
			all.add("USER_JOB_WRAPPER", "install the static build of grange", program+" loads libraries",
				"a job's LD_PRELOAD would run on the host")
		}
	}
}

// loadsLibraries is batch.LoadsLibraries; of what is no program too, which does not.
func loadsLibraries(image []byte) bool {
	file, err := elf.NewFile(bytes.NewReader(image))
	return err == nil && batch.LoadsLibraries(file)
}

func (c Config) checkProgram(look Look, name, path string, all *findings) {
	info, err := look.Stat(path)
	if err != nil {
		all.add(name, install, fmt.Sprintf("%s = %s: %v", name, path, err), "no job starts on this host")
		return
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 != 0o111 {
		all.add(name, "chmod 755 "+path, name+" = "+path+" is not a program that everybody may run",
			"it runs as each job's user")
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := look.Stat(dir)
		if err == nil {
			owner, ok := info.Sys().(*syscall.Stat_t)
			if sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0; info.Mode().Perm()&0o022 != 0 && !sticky ||
				ok && owner.Uid != 0 {
				all.add(name, "chown root "+dir+" && chmod go-w "+dir, name+": others than root can change "+dir,
					"it runs as each job's user, or as root")
			}
		}
		if dir == "/" || dir == "." {
			break
		}
	}
	under := words(c["MOUNT_UNDER_SCRATCH"])
	for i := range under {
		under[i] = strings.Trim(under[i], `"`)
	}
	if len(under) == 0 {
		under = []string{"/tmp", "/var/tmp"}
	}
	for _, dir := range under {
		if dir != "" && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			all.add(name, "install it elsewhere: grange htcondor install --hooks /usr/libexec/grange",
				name+" = "+path+" lies below "+dir,
				"jobs have a "+dir+" of their own (MOUNT_UNDER_SCRATCH): it is not there for them")
		}
	}
}

func (c Config) checkAccess(all *findings) {
	c.checkHistory(all)
	if !slices.ContainsFunc(words(c["JOB_TRANSFORM_NAMES"]),
		func(n string) bool { return strings.EqualFold(n, "GRANGE") }) ||
		!strings.Contains(c["JOB_TRANSFORM_GRANGE"], fmt.Sprint(batch.ExitNever)) {
		all.add("JOB_TRANSFORM_NAMES", "grange htcondor install --access, then condor_reconfig",
			"no job transform of grange's",
			"a job whose VM was not started leaves the queue with status 197 instead of being held")
	}
}

func truth(text string) bool { return strings.EqualFold(text, "true") || text == "1" }

// FitPath reports whether a path can stand in HTCondor's configuration and in the first line of a program.
func FitPath(path string) error {
	if !filepath.IsAbs(path) || strings.ContainsAny(path, " \t\n\"'$#\\") {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("invalid path %q: it must be absolute, without blanks and quotes", path),
			Hint:    "HTCondor's configuration could not name it"}
	}
	return nil
}
