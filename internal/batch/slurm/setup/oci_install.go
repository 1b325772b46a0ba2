package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// OCIName is the file beside slurm.conf that has Slurm hand tasks with --container over. Without it Slurm takes
// --container for a remark, and runs the job on the host itself.
const OCIName = "oci.conf"

// OCIConf is oci.conf. exec has the wrapper take the place of the shell that Slurm starts, which would take the job's
// signals. Slurm asks and deletes as root, and puts words of the user's into %b and others: there are numbers only in
// those lines. CreateEnvFile stays unset, for Slurm would start its shell with the job's environment then, LD_PRELOAD
// included.
func (i Install) OCIConf() string {
	return fmt.Sprintf(`%sRunTimeRun="exec %s --socket %s slurm oci run %%b %%j %%t --words %s"
RunTimeQuery="exec %[2]s slurm oci state %%j.%%s"
RunTimeKill="exec %[2]s slurm oci kill %%j.%%s"
RunTimeDelete="exec %[2]s slurm oci delete %%j.%%s"
`, mark, i.Wrapper, i.Socket, i.Words)
}

// runLine is how oci.conf begins its line that counts.
func runLine(wrapper string) string { return `RunTimeRun="exec ` + wrapper + " " }

// OCIProlog refuses all jobs on a host where Slurm would take --container for a remark. slurmd says in SLURM_CONF which
// slurm.conf it has read (older ones do not), and slurmstepd looks for oci.conf beside that one. It leaves what Slurm
// does not tell a container; see slurm.Word. The shell does all without another program: every job on the host waits
// for it.
func (i Install) OCIProlog() string {
	return fmt.Sprintf(`#!/bin/sh
%sPATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
conf=${SLURM_CONF:-%s}
conf=${conf%%/*}/%s ready=
if [ -O "$conf" ]; then
	while read -r line; do
		case $line in '%s'*) ready=yes ;; esac
	done <"$conf"
fi
[ -d %[6]s ] || mkdir -p %[6]s
[ "$ready" ] && [ -x %[5]s ] && printf '%%s\n' "${SLURM_JOB_RESTART_COUNT:-0}" "$SLURM_JOB_WORK_DIR" >%[6]s/$SLURM_JOB_ID && exit 0
exec %[5]s slurm oci prolog --conf "$conf"
`, mark, filepath.Join(i.ConfDir, "slurm.conf"), OCIName, runLine(i.Wrapper), i.Wrapper, i.Words)
}

// OCIEpilog takes the prolog's word away.
func (i Install) OCIEpilog() string {
	return fmt.Sprintf("#!/bin/sh\n%sexec /bin/rm -f %s/$SLURM_JOB_ID\n", mark, i.Words)
}

// planOCI is Plan for bundles instead of the plug-in.
func (i Install) planOCI() (Plan, error) {
	var p Plan
	switch {
	case i.Submit || i.Catalogue != "" || i.Metal || i.Default != "":
		return p, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: "--submit, --catalogue, --default and --allow-metal are the plug-in's; --oci has none",
			Hint:    "grange slurm install --oci, on hosts; where people submit nothing is needed"}
	case strings.ContainsAny(i.Wrapper+i.Socket+i.Words+i.ConfDir, " \t\n'\"\\%$`;&|<>()*?#"):
		return p, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("%q, %q, %q: oci.conf has no way to say such a path", i.Wrapper, i.Socket, i.Words),
			Hint:    "--wrapper, --socket and --words without blanks and signs"}
	}
	p.Line = i.OCIConf()
	for _, f := range []struct {
		path, text string
		mode       fs.FileMode
	}{{OCIName, p.Line, 0o644}, {"prolog.d/50-grange", i.OCIProlog(), 0o755}, {"epilog.d/50-grange",
		i.OCIEpilog(), 0o755}} {
		file := File{Path: i.file(filepath.Join(i.ConfDir, f.path)), Text: []byte(f.text), Mode: f.mode, Has: "new"}
		switch old, err := os.ReadFile(file.Path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return p, err
		case string(old) == f.text:
			file.Has = "same"
		case f.path == OCIName && !strings.Contains(string(old), mark):
			return p, &farm.Error{Kind: farm.Conflict, Code: CodeBadSlurmConf,
				Message: file.Path + " is the site's own: Slurm knows one container runtime on a host",
				Hint:    "use the plug-in there (grange slurm install), or move the file away"}
		default:
			file.Has = "changed"
		}
		p.Files = append(p.Files, file)
	}
	return p, i.editsOCI(&p)
}

func (i Install) epilogFile() string { return filepath.Join(i.ConfDir, "epilog.d/50-grange") }

// editsOCI are what slurm.conf lacks.
func (i Install) editsOCI(p *Plan) error {
	if err := i.slurmEdits(p); err != nil || p.NoConf != "" {
		return err
	}
	path := i.file(filepath.Join(i.ConfDir, "slurm.conf"))
	conf, err := ReadConf(path)
	if err != nil {
		return err
	}
	pattern := filepath.Join(i.ConfDir, "epilog.d/*")
	have := conf.Get("Epilog")
	if strings.Contains(have, pattern) || strings.Contains(have, i.epilogFile()) {
		return nil
	}
	line := "Epilog=" + pattern
	if have != "" {
		line = fmt.Sprintf("# Epilog=%s is set: let it end with: exec %s", have, i.epilogFile())
	}
	for n := range p.Edits {
		if p.Edits[n].Path == path {
			if !slices.Contains(strings.Split(string(p.Edits[n].New), "\n"), line) {
				p.Edits[n].New = appendLines(p.Edits[n].New, line)
			}
			return nil
		}
	}
	old, err := os.ReadFile(path)
	if err != nil || slices.Contains(strings.Split(string(old), "\n"), line) {
		return err
	}
	p.Edits = append(p.Edits, Edit{path, old, appendLines(old, line)})
	return nil
}

// removeOCI adds oci.conf and the epilog to what uninstall removes. oci.conf stays while slurm.conf names hooks of
// ours: without the prolog's word the wrapper refuses what names a bundle, and without oci.conf it would run on the
// host.
func (i Install) removeOCI(r *Removal, conf Conf) {
	if ours(i.file(i.epilogFile())) {
		if slices.ContainsFunc(strings.Split(conf.Get("Epilog"), ","),
			func(word string) bool { return i.only(strings.TrimSpace(word), i.epilogFile()) }) {
			r.Named = append(r.Named, conf.Where("Epilog"))
			r.Hollow = append(r.Hollow, i.file(i.epilogFile()))
		} else {
			r.Remove = append(r.Remove, i.file(i.epilogFile()))
		}
	}
	if oci := i.file(filepath.Join(i.ConfDir, OCIName)); len(r.Named) == 0 && ours(oci) {
		r.Remove = append(r.Remove, oci)
	}
}

// withoutEpilog takes our word out of Epilog.
func (i Install) withoutEpilog(lines []string) []string {
	var kept []string
	for _, line := range lines {
		key, value, _ := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "# ") && strings.HasSuffix(line, " is set: let it end with: exec "+i.epilogFile()):
			continue
		case !strings.EqualFold(strings.TrimSpace(key), "epilog") || strings.ContainsAny(value, "\\#"):
			kept = append(kept, line)
			continue
		}
		words := strings.Split(value, ",")
		rest := slices.DeleteFunc(slices.Clone(words),
			func(word string) bool { return i.only(strings.TrimSpace(word), i.epilogFile()) })
		switch {
		case len(rest) == len(words):
			kept = append(kept, line)
		case len(rest) > 0:
			kept = append(kept, key+"="+strings.Join(rest, ","))
		}
	}
	return kept
}
