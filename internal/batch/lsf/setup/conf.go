package setup

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// section is what lies between Begin and End in a file of LSF's. A table, as in lsf.shared, has rows; a list has keys
// and values.
type section struct {
	name string
	has  map[string]string
	rows []string
}

// parseConf reads a file of LSF's: KEY = value, a backslash at the end of a line goes on in the next, # to the end of
// the line. What is outside of sections is in the first one, which has no name.
func parseConf(text string) []section {
	all := []section{{has: map[string]string{}}}
	at, whole := 0, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if rest, more := strings.CutSuffix(line, `\`); more {
			whole += rest + " "
			continue
		}
		line, whole = strings.TrimSpace(whole+line), ""
		if i := strings.Index(line, " #"); i >= 0 {
			line = strings.TrimSpace(line[:i])
		}
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		switch {
		case strings.EqualFold(words[0], "begin") && len(words) == 2:
			all = append(all, section{name: words[1], has: map[string]string{}})
			at = len(all) - 1
			continue
		case strings.EqualFold(words[0], "end") && len(words) <= 2:
			at = 0
			continue
		}
		all[at].rows = append(all[at].rows, line)
		if key, value, ok := strings.Cut(line, "="); ok {
			all[at].has[strings.ToUpper(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return all
}

// unquoted is a value without the quotes around it.
func unquoted(v string) string { return strings.Trim(v, `"'`) }

func (s section) yes(key string) bool {
	return slices.Contains([]string{"y", "yes", "1", "true"}, strings.ToLower(unquoted(s.has[key])))
}

// Site is what there is to check: LSF's own files, which all hosts of a cluster share.
type Site struct {
	Root      fs.FS
	ConfPath  string
	conf      section
	queues    []section
	queuePath string
	params    section // of lsb.params
	apps      []section
	appPath   string
	shared    []section
	cluster   []section
	serverDir string
	esub      string // its text
}

func in(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }

// ReadSite reads lsf.conf and the files that it leads to.
func ReadSite(root fs.FS, conf string) (*Site, error) {
	s := &Site{Root: root, ConfPath: conf}
	text, err := fs.ReadFile(root, in(conf))
	if err != nil {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeBatchConf,
			Message: "no configuration of LSF: " + err.Error(),
			Hint:    "--conf names lsf.conf, which lies in $LSF_ENVDIR"}
	}
	s.conf = parseConf(string(text))[0]
	confDir := cmp.Or(unquoted(s.conf.has["LSF_CONFDIR"]), path.Dir(conf))
	s.serverDir = unquoted(s.conf.has["LSF_SERVERDIR"])
	batchDir := cmp.Or(unquoted(s.conf.has["LSB_CONFDIR"]), path.Join(confDir, "lsbatch"))
	read := func(pattern string) (sections []section, where string) {
		names, _ := fs.Glob(root, in(pattern))
		for _, name := range names {
			if b, err := fs.ReadFile(root, name); err == nil {
				sections, where = append(sections, parseConf(string(b))...), "/"+name
			}
		}
		return sections, where
	}
	s.queues, s.queuePath = read(path.Join(batchDir, "*", "configdir", "lsb.queues"))
	if s.queuePath == "" {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeBatchConf,
			Message: "no lsb.queues below " + batchDir,
			Hint:    "LSB_CONFDIR in " + conf + " says where; run it where these files are, as on LSF's master"}
	}
	params, _ := read(path.Join(batchDir, "*", "configdir", "lsb.params"))
	s.params = section{has: map[string]string{}}
	for _, p := range params {
		for key, value := range p.has {
			s.params.has[key] = value
		}
	}
	s.apps, s.appPath = read(path.Join(batchDir, "*", "configdir", "lsb.applications"))
	s.shared, _ = read(path.Join(confDir, "lsf.shared"))
	s.cluster, _ = read(path.Join(confDir, "lsf.cluster.*"))
	if b, err := fs.ReadFile(root, in(path.Join(s.serverDir, "esub.grange"))); err == nil {
		s.esub = string(b)
	}
	return s, nil
}
