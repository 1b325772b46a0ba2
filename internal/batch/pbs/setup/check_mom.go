package setup

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch"
)

// checkMom looks at a host on which jobs run: what its mom has got from the server, and its own configuration.
func (s *Site) checkMom(add func(string, batch.Finding)) {
	text, where, err := s.read("mom_priv/hooks/" + HookName + ".PY")
	if err != nil {
		add("mom-hook", batch.Finding{Level: batch.Broken, Found: err.Error(), Where: where,
			Why: "the server has not sent the hook here: jobs wait, or start on the host itself",
			Do:  "run it as root; " + reinstall})
	} else {
		add("mom-hook", checkHookText(text, where))
	}
	text, where, err = s.read("mom_priv/hooks/" + HookName + ".CF")
	if err != nil {
		add("mom-hook-config", batch.Finding{Level: batch.Broken, Found: err.Error(), Where: where,
			Why: "the hook rejects every job", Do: reinstall})
	} else {
		c, f := checkHookConfig(text, where)
		add("mom-hook-config", f)
		if len(c.Wrapper) > 0 {
			add("wrapper", batch.CheckWrapper(s.Root, c.Wrapper[0]))
		}
	}
	add("staging", s.checkStaging())
	add("login", batch.CheckLogin(s.Root))
	text, where, err = s.read("mom_priv/config")
	if err != nil {
		add("mom-config", batch.Finding{Level: batch.Advice, Found: err.Error(), Where: where,
			Why: "the mom's own settings are not to be seen", Do: "run it as root"})
		return
	}
	c := momConfig(text)
	add("reject-root-scripts", func() batch.Finding {
		if on(c["$reject_root_scripts"]) {
			return batch.Finding{Level: batch.Broken, Found: "$reject_root_scripts " + c["$reject_root_scripts"],
				Where: where, Why: "the mom takes no new hook from the server, nor a changed one",
				Do: "leave it out, at least while the hook is installed"}
		}
		return good("new hooks are taken", where)
	}())
	add("restrict-user", s.checkRestrict(c, where))
}

func on(text string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on", "t", "y"}, strings.ToLower(text))
}

// momConfig are the mom's settings: $key value.
func momConfig(text string) map[string]string {
	c := map[string]string{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 && strings.HasPrefix(words[0], "$") {
			c[words[0]] = strings.Join(words[1:], " ")
		}
	}
	return c
}

// checkStaging: a mom copies a job's files (qsub -W stagein, stageout, and the output of every job) by scp as its user,
// on the host. scp reads ~/.ssh/config, where ProxyCommand names a program.
func (s *Site) checkStaging() batch.Finding {
	f := batch.Finding{Level: batch.Broken, Found: "PBS_SCP=" + s.SCP, Where: s.Conf,
		Why: "scp reads ~/.ssh/config of the job's user, and runs the ProxyCommand there on the host, before and " +
			"after every job", Do: "the file " + StagingName + " that grange pbs install writes, at " + stagingPath +
			" on every host, root's and mode 755; PBS_SCP=" + stagingPath + " in " + s.Conf}
	if s.SCP == "" {
		return good("PBS_SCP is not set: pbs_rcp", s.Conf)
	}
	text, err := fs.ReadFile(s.Root, strings.TrimPrefix(path.Clean(s.SCP), "/"))
	if err != nil || !strings.HasPrefix(string(text), "#!") || !strings.Contains(string(text), "scp -F none ") {
		return f
	}
	if f := batch.CheckScript(s.Root, s.SCP, "grange pbs install"); f.Level != batch.Good {
		return f
	}
	return good(f.Found+", without users' configuration", s.Conf)
}

// checkRestrict: a mom that ends the processes of users without a job would end QEMU, whose user never has one.
func (s *Site) checkRestrict(c map[string]string, where string) batch.Finding {
	if !on(c["$restrict_user"]) {
		return good("$restrict_user is not set", where)
	}
	free := strings.FieldsFunc(c["$restrict_user_exceptions"], func(r rune) bool { return r == ',' || r == ' ' })
	most := 999
	fmt.Sscan(c["$restrict_user_maxsysid"], &most)
	passwd, _ := fs.ReadFile(s.Root, "etc/passwd")
	var caught []string
	for line := range strings.Lines(string(passwd)) {
		f := strings.Split(line, ":")
		uid := -1
		if len(f) < 3 || f[0] != "qemu" && f[0] != "libvirt-qemu" {
			continue
		}
		if _, err := fmt.Sscan(f[2], &uid); err == nil && uid > most && !slices.Contains(free, f[0]) {
			caught = append(caught, fmt.Sprintf("%s (%d)", f[0], uid))
		}
	}
	if len(caught) > 0 {
		return batch.Finding{Level: batch.Broken,
			Found: "$restrict_user, and QEMU runs as " + strings.Join(caught, " or "), Where: where,
			Why: "the mom kills the processes of users who have no job here: every VM",
			Do:  "$restrict_user_exceptions with that user, and kill -HUP the mom"}
	}
	return good("$restrict_user leaves QEMU's user alone", where)
}
