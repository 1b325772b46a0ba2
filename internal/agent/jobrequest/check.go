package jobrequest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// maxPrologs is far beyond what a batch system has: the site's, and the job's.
const maxPrologs = 8

// Check refuses requests that make no sense before anything is granted. Errors: farm.CodeBadRequest.
func Check(r *api.JobRequest) error {
	switch {
	case !farm.IsID(r.ID):
		return bad("job ID %q is not a UUID in lower case", r.ID)
	case len(r.Argv) == 0 && (r.Image == "" || r.Batch != ""), len(r.Argv) > 0 && r.Argv[0] == "":
		return bad("no command")
	case !filepath.IsAbs(r.Dir):
		return bad("working directory %q is not an absolute path", r.Dir)
	case len(r.Argv)+len(r.Env) > maxWords:
		return bad("%d words of command and environment; at most %d", len(r.Argv)+len(r.Env), maxWords)
	case len(r.Dir) > maxPath || len(r.Home) > maxPath:
		return bad("a path has more than %d bytes", maxPath)
	case len(r.Binds) > guest.MaxBinds:
		return bad("%d binds; at most %d", len(r.Binds), guest.MaxBinds)
	}
	if s := r.Script; s != nil && (!filepath.IsAbs(s.Path) || filepath.Clean(s.Path) != s.Path || s.Path == "/" ||
		strings.ContainsRune(s.Path, 0)) {
		return bad("script %.100q: an absolute path without detours is needed", s.Path)
	}
	if len(r.Prologs) > maxPrologs {
		return bad("%d prologs; at most %d", len(r.Prologs), maxPrologs)
	}
	for _, s := range append(slices.Clone(r.Prologs), script(r)) {
		if len(s.Path) > maxPath {
			return bad("a path has more than %d bytes", maxPath)
		}
	}
	for _, b := range r.Binds {
		if len(b.Target) > maxPath {
			return bad("a path has more than %d bytes", maxPath)
		}
		if !filepath.IsAbs(b.Target) || filepath.Clean(b.Target) == "/" {
			return bad("bind target %q: an absolute path below / is needed", b.Target)
		}
		if err := farm.Gateway(b.Gateway).Check(); err != nil {
			return bad("bind target %q: %v", b.Target, err)
		}
	}
	for _, words := range [][]string{r.Argv, r.Env} {
		if slices.ContainsFunc(words, func(text string) bool { return strings.ContainsRune(text, 0) }) {
			return bad("a NUL byte in the command or its environment")
		}
	}
	return nil
}

// As the kernel counts: a path, and what execve takes many times over.
const maxPath, maxWords = 4096, 1 << 20

func script(r *api.JobRequest) api.Script {
	if r.Script == nil {
		return api.Script{}
	}
	return *r.Script
}

// CodeWorkersOnly is of a network that jobs cannot have by its kind.
const CodeWorkersOnly farm.Code = "workers-only"

// CheckNetwork refuses a job that would be on the host's network: it has no address there, and could take another's.
func CheckNetwork(n farm.Network) error {
	if kind, ok := n.Kind(); !ok || kind.Jobs {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: CodeWorkersOnly,
		Message: fmt.Sprintf("network %q is for workers only", n),
		Hint: "jobs have the networks " + strings.Join(farm.JobNetworks(), " and ") +
			", and those of `grange network list --local`"}
}

func bad(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: fmt.Sprintf(format, args...),
		Hint: "see `grange exec --help`"}
}
