package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// CheckOCI is where our prolog goes when it does not let a job pass: it says why, and takes the host out of service
// with the reason. It never lets a job pass. Conf is oci.conf here.
func (p Prolog) CheckOCI(ctx context.Context) error {
	refused := &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoOCI,
		Message: p.Conf + " does not hand jobs to grange, or is not root's: Slurm would run jobs with --container on " +
			"the host itself", Hint: "grange slurm install --oci; then: scontrol update nodename=" +
			p.Getenv("SLURMD_NODENAME") + " state=resume"}
	return errors.Join(refused, p.close(ctx, OCIName+" does not hand jobs to grange, see grange slurm check"))
}

// byBundle reports whether a host's way into VMs is oci.conf: that is there, or the prolog wants it to be.
func (s Site) byBundle() bool {
	return strings.Contains(s.OCI.Get("RunTimeRun"), "slurm oci run") || hookedOCI(s.Slurm.Get("Prolog"))
}

// hookedOCI reports whether a Prolog setting, which may be a pattern, starts the prolog that looks for oci.conf.
func hookedOCI(value string) bool {
	return slices.ContainsFunc(hookFiles(value),
		func(text string) bool { return strings.Contains(text, "slurm oci prolog") })
}

func hookFiles(value string) []string {
	var texts []string
	for _, pattern := range strings.Split(value, ",") {
		files, _ := filepath.Glob(strings.TrimSpace(pattern))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil {
				texts = append(texts, string(text))
			}
		}
	}
	return texts
}

// checkOCI looks at oci.conf itself.
func checkOCI(s Site) batch.Finding {
	run := s.OCI.Get("RunTimeRun")
	switch {
	case !s.byBundle():
		return batch.Finding{Level: batch.Good, Found: "not used", Where: s.OCI.Path}
	case s.OCI.Missing:
		return batch.Finding{Level: batch.Broken, Found: "no such file", Where: s.OCI.Path,
			Why: "Slurm takes --container for a remark then, and runs the job on the host itself; the prolog refuses " +
				"all jobs", Do: "grange slurm install --oci"}
	case !strings.Contains(run, "slurm oci run"):
		return s.OCI.finding("RunTimeRun", batch.Broken, "the prolog wants grange there, and refuses all jobs",
			"grange slurm install --oci")
	case !strings.HasPrefix(run, "exec "):
		return s.OCI.finding("RunTimeRun", batch.Broken,
			"the shell that starts it takes the job's signals, and the job ends without its trap",
			"grange slurm install --oci")
	}
	for _, key := range []string{"RunTimeQuery", "RunTimeKill", "RunTimeDelete"} {
		switch line := s.OCI.Get(key); {
		case line == "":
			return s.OCI.finding(key, batch.Broken,
				"Slurm refuses an oci.conf without it, and no job with --container starts",
				"grange slurm install --oci")
		case slices.ContainsFunc([]string{"%b", "%r", "%@"},
			func(word string) bool { return strings.Contains(line, word) }):
			return s.OCI.finding(key, batch.Broken,
				"Slurm has a shell run it as root, with words in it that the job's user wrote",
				"grange slurm install --oci")
		}
	}
	if env := s.OCI.Get("CreateEnvFile"); env != "" && !strings.EqualFold(env, "false") &&
		!strings.EqualFold(env, "disabled") {
		return s.OCI.finding("CreateEnvFile", batch.Warning,
			"releases of Slurm after 22.05 start the shell before grange with the job's environment then, and "+
				"LD_PRELOAD in it counts on the host", "leave CreateEnvFile out")
	}
	if yes(s.OCI.Get("IgnoreFileConfigJson")) || strings.EqualFold(s.OCI.Get("IgnoreFileConfigJson"), "true") {
		return s.OCI.finding("IgnoreFileConfigJson", batch.Broken,
			"Slurm then does not write the job's command and environment where grange reads them, and no job with "+
				"--container starts", "leave IgnoreFileConfigJson out")
	}
	return s.OCI.finding("RunTimeRun", batch.Good, "", "")
}

// checkOCIProlog: what keeps a host without oci.conf from running jobs that named a bundle.
func checkOCIProlog(s Site) batch.Finding {
	switch {
	case !s.byBundle():
		return batch.Finding{Level: batch.Good, Found: "not used", Where: s.OCI.Path}
	case !hookedOCI(s.Slurm.Get("Prolog")):
		return s.slurm("Prolog", batch.Broken,
			"a host whose oci.conf is missing takes --container for a remark, and runs the job on the host itself; "+
				"the prolog refuses it", "grange slurm install --oci, and Prolog=CONF_DIR/prolog.d/*")
	}
	if !slices.Contains(s.Slurm.prologFlags(), "alloc") {
		return s.slurm("PrologFlags", batch.Warning,
			"the prolog runs beside a job's first step then, and a job of srun may start before it",
			"PrologFlags=Contain")
	}
	return s.slurm("Prolog", batch.Good, "", "")
}

// checkOCISteps: what Slurm has no hook for.
func checkOCISteps(s Site) batch.Finding {
	if !s.byBundle() {
		return batch.Finding{Level: batch.Good, Found: "not used", Where: s.OCI.Path}
	}
	f := batch.Finding{Level: batch.Advice, Found: "steps that name no bundle", Where: s.Slurm.Path,
		Why: "they run on the host itself, also in a job that has one, and so do srun --task-prolog and " +
			"--task-epilog: bundles put jobs into VMs, and keep nobody in them who wants out",
		Do: "the plug-in, where users must not run anything on the host"}
	if slices.Contains(s.Slurm.List("LaunchParameters"), "use_interactive_step") {
		return s.slurm("LaunchParameters", batch.Broken,
			"salloc --container=BUNDLE srun PROGRAM runs the program on the host itself: steps do not inherit the "+
				"bundle. Without this word Slurm refuses salloc --container",
			"leave use_interactive_step out; srun --pty --container=BUNDLE sh is a shell in a VM")
	}
	lua := filepath.Join(filepath.Dir(s.Slurm.Path), "job_submit.lua")
	text, err := os.ReadFile(lua)
	if err != nil || !slices.Contains(s.Slurm.List("JobSubmitPlugins"), "lua") ||
		!strings.Contains(string(text), ".container") {
		return f
	}
	if !strings.Contains(string(text), ".script") {
		f.Level, f.Found, f.Where = batch.Broken, "job_submit.lua sets a job's container", lua
		f.Why = "a job of srun alone gets it as well, but its step does not, and runs on the host itself"
		f.Do = "refuse a job that has no script and names no container, as in the guide on Slurm"
		return f
	}
	f.Found += fmt.Sprintf(", and %s for the others", filepath.Base(lua))
	return f
}
