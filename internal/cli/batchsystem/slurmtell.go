package batchsystem

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/batch/slurm/setup"
)

// siteEdit is a change of a file of the site's own, for programs.
type siteEdit struct {
	Path string `json:"path"`
	Diff string `json:"diff"`
	Made bool   `json:"made"`
}

func siteEdits(edits []setup.Edit, made bool) []siteEdit {
	all := []siteEdit{}
	for _, e := range edits {
		all = append(all, siteEdit{e.Path, e.Diff(), made})
	}
	return all
}

// tellSlurmInstall prints what install did, or would do.
func (a slurmCommands) tellSlurmInstall(i setup.Install, p setup.Plan, dryRun bool) error {
	made := i.Write && !dryRun
	if a.JSON {
		type file struct {
			Path string `json:"path"`
			Has  string `json:"has"` // new, same or changed
		}
		files := []file{}
		for _, f := range p.Files {
			files = append(files, file{f.Path, f.Has})
		}
		return a.PrintJSON(map[string]any{"dry_run": dryRun, "files": files, "line": p.Line,
			"edits": siteEdits(p.Edits, made), "missing_conf": p.NoConf, "restart_slurmd": p.Restart})
	}
	for _, f := range p.Files {
		what := map[string]string{"new": "wrote", "changed": "changed", "same": "has"}[f.Has]
		if dryRun {
			what = map[string]string{"new": "would write", "changed": "would change", "same": "has"}[f.Has]
		}
		fmt.Fprintf(a.Out, "%s %s\n", what, f.Path)
	}
	if dryRun {
		fmt.Fprintf(a.Out, "\n%s:\n%s\n", map[bool]string{false: "the plug-in's line", true: "oci.conf"}[i.OCI], p.Line)
	}
	if p.NoConf != "" {
		fmt.Fprintf(a.Out, "\nno %s: nothing has the prolog started yet; where it lies elsewhere, "+
			"--conf-dir\n", p.NoConf)
	}
	for _, e := range p.Edits {
		if made {
			fmt.Fprintf(a.Out, "changed %s\n%s", e.Path, e.Diff())
		} else {
			fmt.Fprintf(a.Out, "\nthe site's own file needs this (--write makes it so):\n%s", e.Diff())
		}
	}
	if !dryRun && p.Restart {
		fmt.Fprintln(a.Out, "\nthen: systemctl daemon-reload, systemctl restart slurmd")
	}
	if !dryRun {
		fmt.Fprintln(a.Out, "\nthen: scontrol reconfigure, and grange slurm check")
	}
	return nil
}

// tellSlurmRemoval prints what uninstall did.
func (a slurmCommands) tellSlurmRemoval(i setup.Install, r setup.Removal) error {
	if a.JSON {
		list := func(words []string) []string { return append([]string{}, words...) }
		return a.PrintJSON(map[string]any{"removed": list(r.Remove), "emptied": list(r.Hollow),
			"edits": siteEdits(r.Edits, i.Write), "named": list(r.Named)})
	}
	for _, path := range r.Remove {
		fmt.Fprintln(a.Out, "removed", path)
	}
	for _, path := range r.Hollow {
		fmt.Fprintln(a.Out, "emptied", path)
	}
	for _, e := range r.Edits {
		if i.Write {
			fmt.Fprintf(a.Out, "changed %s\n%s", e.Path, e.Diff())
		} else {
			fmt.Fprintf(a.Out, "\nthe site's own file still has this (--write takes it out):\n%s", e.Diff())
		}
	}
	if len(r.Named) > 0 {
		first := "take our Prolog out of " + strings.Join(r.Named, " and ") + " on all hosts, "
		if i.Write {
			first = ""
		}
		fmt.Fprintf(a.Out, "\nthen: %sscontrol reconfigure, and grange slurm uninstall again for what is emptied\n",
			first)
	}
	return nil
}
