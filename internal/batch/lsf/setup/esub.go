package setup

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// CodeOnHost is the code of errors about a submission that has an option which the batch system would run on the host,
// beside the job; see docs/errors.md.
const CodeOnHost farm.Code = "on-the-host"

// Submission is what esub changes of a job: lines for $LSB_SUB_MODIFY_FILE and $LSB_SUB_MODIFY_ENVFILE.
type Submission struct{ Modify, Env []string }

// ImageVariable carries an image from esub to the job starter. It is the user's word, as an option of bsub is.
const ImageVariable = "GRANGE_LSF_IMAGE"

// Esub looks at a submission to one of our queues: params is $LSB_SUB_PARM_FILE, args are those of bsub -a
// 'grange(IMAGE)'. It writes the command line so that it is one word between the single quotes of the job starter, into
// which LSF puts it as it stands, and refuses what LSF would run beside the job, on the host. bmod and brestart come
// here as well.
func Esub(params io.Reader, args []string, queues []string) (Submission, error) {
	var s Submission
	p, err := parameters(params)
	if err != nil {
		return s, err
	}
	// bsub -q takes several queues, of which LSF chooses one. bmod without -q leaves the job in its own, which is not
	// named here.
	named := strings.Fields(p["LSB_SUB_QUEUE"])
	if len(named) > 0 && len(queues) > 0 &&
		!slices.ContainsFunc(named, func(q string) bool { return slices.Contains(queues, q) }) {
		return s, refuseImage(named, args, queues)
	}
	if err := refuseOnHost(p); err != nil {
		return s, err
	}
	if len(args) > 1 || len(args) == 1 && !plainImage(args[0]) {
		return s, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("grange takes one image, not %q", strings.Join(args, ", ")),
			Hint:    "bsub -a 'grange(IMAGE)'"}
	}
	if len(args) == 1 {
		s.Env = append(s.Env, ImageVariable+"="+enquote(args[0]))
	}
	if line := p["LSB_SUB_COMMAND_LINE"]; line != "" {
		s.Modify = append(s.Modify, "LSB_SUB_COMMAND_LINE="+enquote(inner(line)))
	}
	return s, nil
}

// refuseImage refuses an image for a queue whose jobs run on the host.
func refuseImage(named, args, queues []string) error {
	if len(args) == 0 {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
		Message: fmt.Sprintf("-a 'grange(%s)': jobs of queue %s run on the host, without a virtual machine",
			strings.Join(args, ", "), strings.Join(named, " ")),
		Hint: "name a queue of virtual machines (" + strings.Join(queues, ", ") + ") by -q, or leave grange(IMAGE) out"}
}

// onHost are options by which LSF runs something as the user on the host, where no job starter is asked, by the end of
// the variable that an esub sees them in: LSB_SUB_PRE_EXEC, LSB_SUB3_POST_EXEC and so on.
var onHost = []struct{ variable, option string }{
	{"PRE_EXEC", "-E"},
	{"POST_EXEC", "-Ep"},
	{"LOGIN_SHELL", "-L"},
	{"CHKPNT_DIR", "-k"},
	{"CHKPNT_METHOD", "-k"},
	{"CHKPNT_PERIOD", "-k"},
	{"RESTART", "brestart"},
	{"RESTART_FORCE", "brestart"},
	{"RESIZE_NOTIFY_CMD", "-rnc"},
	{"INTERACTIVE_SSH", "-IS"},
	{"XJOB_SSH", "-IX"},
}

// reset is how an option is taken back, as by bmod -En.
const reset = "SUB_RESET"

func refuseOnHost(p map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(p)) {
		_, name, _ := strings.Cut(strings.TrimPrefix(key, "LSB_"), "_") // behind SUB, SUB2, SUB3 ...
		for _, o := range onHost {
			if !strings.HasSuffix("_"+name, "_"+o.variable) || p[key] == "" || p[key] == reset {
				continue
			}
			return &farm.Error{Kind: farm.Denied, Code: CodeOnHost,
				Message: fmt.Sprintf("%s (%s): LSF would run that on the host, outside of the job's VM", o.option, key),
				Hint:    "do it in the job itself; for a job of another queue, name that queue: -q"}
		}
	}
	return nil
}

func plainImage(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._:@/-", r))
	})
}

// inner is a text as it stands between single quotes of a POSIX shell.
func inner(text string) string { return strings.ReplaceAll(text, "'", `'\''`) }

// enquote is what unquote reads.
func enquote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text) + `"`
}

// parameters reads lines like LSB_SUB_QUEUE="normal", as bsub writes them for the shell to read: in double quotes, with
// a backslash before what means something there, or bare.
func parameters(r io.Reader) (map[string]string, error) {
	found := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(r, 4<<20))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.HasPrefix(key, "LSB_SUB") {
			found[key] = unquote(value)
		}
	}
	return found, lines.Err()
}

func unquote(v string) string {
	if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
		return v
	}
	var b strings.Builder
	for i := 1; i < len(v)-1; i++ {
		if v[i] == '\\' && i+1 < len(v)-1 && strings.IndexByte("\\\"$`", v[i+1]) >= 0 {
			i++
		}
		b.WriteByte(v[i])
	}
	return b.String()
}
