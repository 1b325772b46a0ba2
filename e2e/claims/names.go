package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// kind is one kind of names that pages use.
type kind struct {
	what  string
	among *regexp.Regexp // finds the name in a span: its group
	known func(name string) bool
}

// kinds are the names that are compared. Errors, metrics and the keys of configurations are compared with the pages
// that explain them, which other tests hold equal to the code.
func kinds(root string, tree *cobra.Command, c code) ([]kind, error) {
	rows := func(file, row string) (func(string) bool, error) {
		text, err := os.ReadFile(filepath.Join(root, file))
		return func(name string) bool {
			return regexp.MustCompile(strings.Replace(row, "NAME", regexp.QuoteMeta(name), 1)).Match(text)
		}, err
	}
	metric, err := rows("docs/reference/metrics.md", "(?m)^\\| `NAME` \\|")
	if err != nil {
		return nil, err
	}
	target, err := rows("Makefile", "(?m)^NAME:")
	if err != nil {
		return nil, err
	}
	alarm, err := rows("packaging/prometheus/grange.rules.yml", "(?m)- alert: NAME$")
	if err != nil {
		return nil, err
	}
	flags := allFlags(tree)
	served, err := routes(root, c)
	if err != nil {
		return nil, err
	}
	return []kind{
		{"flag", regexp.MustCompile(`^--([a-z][a-z0-9-]*)`), func(n string) bool { return flags[n] || foreign(n) }},
		{"metric", regexp.MustCompile(`\b(grange_[a-z0-9_]+)\b`), func(n string) bool {
			return metric(series.ReplaceAllString(n, "")) || metric(n) || c.has(n)
		}},
		{"target of the Makefile", regexp.MustCompile(`^make ([a-z][a-z0-9-]*)`), target},
		{"alarm", regexp.MustCompile(`^(Grange[A-Z][A-Za-z]+)$`), func(n string) bool {
			return alarm(n) || c.has(n)
		}},
		{"test", regexp.MustCompile(`\b(Test[A-Z][A-Za-z0-9]+)\b`), func(n string) bool {
			return c.has(n)
		}},
		{"file of the repository", regexp.MustCompile(`^((?:internal|e2e|scripts|packaging|cmd|api|docs)/[a-z0-9_./-]+)$`),
			func(n string) bool { return there(root, n) }},
		{"route", regexp.MustCompile(`^((?:GET|POST|PUT|PATCH|DELETE) /v1/\S+)`), func(n string) bool {
			return served[route(n)]
		}},
		{"name", regexp.MustCompile(`^([a-z][a-z0-9]*(?:-[a-z0-9]+)+)$`), func(n string) bool {
			return c.has(n) || slices.Contains(elsewhere, n)
		}},
	}, nil
}

// series are the endings that Prometheus adds to the name of a histogram.
var series = regexp.MustCompile(`_(bucket|sum|count)$`)

// there reports whether a file is there; a package may be named without its folder's wing, a pattern has a star.
func there(root, name string) bool {
	_, err := os.Stat(filepath.Join(root, strings.TrimSuffix(name, "/...")))
	return err == nil
}

// others are the flags of other programs that pages name, by program.
var others = map[string][]string{
	"sbatch, srun and salloc": strings.Fields("bcast chdir constraint container cpus-per-task export get-user-env gres " +
		"jobid mem mpi multi-prog no-requeue epilog prolog task-epilog"),
	"the plug-in of Slurm": strings.Fields("vm vm-mount vm-publish no-vm"),
	"apt":                  {"no-install-recommends"},
	"lvcreate":             {"errorwhenfull"},
	"dpkg-statoverride":    {"update"},
}

// elsewhere are names of other projects, and of things that a page makes up.
var elsewhere = []string{
	"clean-traffic", // a filter of libvirt
	"internal-sftp", // of sshd
	"fetch-crl",
	"www-data",
	"vf3-grange-0a1b2c3d", // an example of a device
}

func foreign(flag string) bool {
	for _, flags := range others {
		if slices.Contains(flags, flag) {
			return true
		}
	}
	return false
}

// allFlags are the names of all flags of the program.
func allFlags(root *cobra.Command) map[string]bool {
	all := map[string]bool{}
	add := func(f *pflag.Flag) { all[f.Name] = !f.Hidden || all[f.Name] }
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root.InitDefaultVersionFlag()
	walk(root)
	return all
}

// folders have what the project consists of beside its documents.
var folders = []string{"api", "cmd", "e2e", "internal", "packaging", "scripts", "slurm", "tools"}

// code is what all files of the project consist of that are no documents.
type code struct {
	text  string
	words map[string]bool // of letters, digits, _ and -
}

// has reports whether a name is in the code, alone or in a longer one.
func (c code) has(name string) bool { return c.words[name] || strings.Contains(c.text, name) }

func readCode(root string) (code, error) {
	c, all := code{words: map[string]bool{}}, strings.Builder{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || path == filepath.Join(root, "e2e/claims")) {
				return fs.SkipDir
			}
			if d.IsDir() {
				return nil
			}
			text, err := os.ReadFile(path)
			all.WriteString(path + "\n" + string(text) + "\n")
			return err
		})
		if err != nil {
			return c, err
		}
	}
	c.text = all.String()
	for w := range strings.FieldsFuncSeq(c.text, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		c.words[w] = true
	}
	return c, nil
}

// check compares the names of one kind on a page.
func (k kind) check(p page) (n int, problems []problem) {
	for _, s := range p.spans {
		for _, m := range k.among.FindAllStringSubmatch(s.text, -1) {
			n++
			if !k.known(m[1]) {
				problems = append(problems, problem{p.name, s.line, "there is no " + k.what + " " + m[1]})
			}
		}
	}
	return n, problems
}
