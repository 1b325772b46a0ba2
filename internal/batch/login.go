package batch

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// CheckLogin looks at who may log in to this host by ssh: what runs there runs on the host, beside all VMs, and no
// batch system is asked.
func CheckLogin(root fs.FS) Finding {
	const config, pam = "etc/ssh/sshd_config", "etc/pam.d/sshd"
	text, err := fs.ReadFile(root, config)
	if err != nil {
		return Finding{ID: "login", Level: Good, Found: "no sshd", Where: "/" + config}
	}
	files := []string{string(text)}
	more, _ := fs.Glob(root, config+".d/*.conf")
	for _, name := range more {
		if text, err := fs.ReadFile(root, name); err == nil {
			files = append(files, string(text))
		}
	}
	for _, line := range lines(files...) {
		if w := strings.Fields(line); len(w) > 1 &&
			(strings.EqualFold(w[0], "AllowUsers") || strings.EqualFold(w[0], "AllowGroups")) {
			return Finding{ID: "login", Level: Good, Found: strings.Join(w, " "), Where: "/" + config}
		}
	}
	f := Finding{ID: "login", Level: Warning, Where: "/" + config,
		Found: "sshd lets in everybody who has an account here",
		Why:   "a login is on the host itself, outside of every VM",
		Do:    "AllowGroups with the administrators' groups, in sshd_config; or pam_access in /etc/pam.d/sshd"}
	account, err := fs.ReadFile(root, pam)
	if err != nil {
		return f
	}
	for _, line := range lines(string(account)) {
		w := strings.Fields(line)
		if len(w) < 3 || strings.TrimPrefix(w[0], "-") != "account" {
			continue
		}
		module := path.Base(w[2])
		if strings.HasPrefix(w[1], "[") { // [success=1 default=ignore] module
			_, rest, _ := strings.Cut(line, "]")
			module = path.Base(strings.Fields(rest + " ?")[0])
		}
		switch strings.TrimSuffix(module, ".so") {
		case "pam_access", "pam_listfile":
			return Finding{ID: "login", Level: Good, Found: module + " decides who logs in", Where: "/" + pam}
		case "pam_slurm_adopt", "pam_slurm", "pam_pbssimpleauth", "pam_lsf":
			f.Where, f.Found = "/"+pam, fmt.Sprintf("%s lets in whoever has a job here", module)
			if w[1] != "required" && w[1] != "requisite" { // what comes behind it is not asked then
				return f
			}
		}
	}
	return f
}

// lines are those of configuration files that say anything.
func lines(files ...string) []string {
	var all []string
	for _, text := range files {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				all = append(all, line)
			}
		}
	}
	return all
}
