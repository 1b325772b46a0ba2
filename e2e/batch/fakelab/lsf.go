package fakelab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/internal/batch/lsf/setup"
	"github.com/grange-project/grange/internal/farm"
)

// lsf is IBM Spectrum LSF 10.1: bsub with a mandatory esub, a queue with a JOB_STARTER, sbatchd and res.
type lsf struct {
	starter string
	bin     string // LSF_BINDIR, which the agent has in its environment: one LSF in a process of tests
}

// prepare makes the directory of LSF's commands before the agent starts.
func (s *lsf) prepare() (err error) {
	if s.bin, err = os.MkdirTemp("/tmp", "glsf"); err != nil {
		return err
	}
	if err := os.Chmod(s.bin, 0o755); err != nil {
		return err
	}
	return os.Setenv("LSF_BINDIR", s.bin)
}

func (s *lsf) close() error {
	os.Unsetenv("LSF_BINDIR")
	return os.RemoveAll(s.bin)
}

// list is what bjobs prints: the jobs that have a host.
func (s *lsf) list(l *Lab) error {
	records := []map[string]string{}
	for _, j := range l.order {
		if j.cpu >= 0 && !j.done {
			records = append(records,
				map[string]string{"JOBID": strconv.Itoa(j.number), "JOBINDEX": strconv.Itoa(j.element), "STAT": "RUN",
					"USER": "nobody", "QUEUE": mainQueue, "PROJ_NAME": "default", "SLOTS": "1",
					"MEMLIMIT": strconv.Itoa(j.wanted.Memory) + " M"})
		}
	}
	text, err := json.Marshal(map[string]any{"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records})
	if err != nil {
		return err
	}
	path := l.path("spool/bjobs.json")
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (*lsf) title() string { return "LSF (model of 10.1)" }

func (s *lsf) setup(l *Lab) setup.Setup {
	return setup.Setup{Grange: l.wrapper(), Socket: l.host.Socket, Queues: []string{mainQueue}, Requeues: 2}
}

func (s *lsf) install(l *Lab) error {
	s.starter = s.setup(l).Starter()
	// The agent asks for the slots of a job, which nothing on the host tells.
	if err := os.WriteFile(filepath.Join(s.bin, "bjobs"),
		fmt.Appendf(nil, "#!/bin/sh\nexec cat %s\n", l.path("spool/bjobs.json")), 0o755); err != nil {
		return err
	}
	return os.WriteFile(l.esub(), []byte(s.setup(l).EsubScript()), 0o755)
}

func (l *Lab) esub() string { return l.path("hooks/esub.grange") }

// abort is LSB_SUB_ABORT_VALUE, as lsf.sub.c has it.
const abort = 97

// accept is bsub: it runs the mandatory esub as the submitting user, with the submission in a file that a shell can
// read, and takes over what that wrote ("Use an esub to ..., Files that it uses", LSF 10.1 administrator's guide).
func (s *lsf) accept(l *Lab, j *job) error {
	line, err := s.commandLine(l, j)
	if err != nil {
		return err
	}
	queue := mainQueue
	if j.wanted.Metal {
		queue = metalQueue
	}
	params, modify, env := l.path("spool/parm."+strconv.Itoa(j.number)), l.path(
		"spool/modify."+strconv.Itoa(j.number)), l.path("spool/env."+strconv.Itoa(j.number))
	text := fmt.Sprintf("LSB_SUB_QUEUE=\"%s\"\nLSB_SUB_COMMAND_LINE=\"%s\"\n", queue, escape(line))
	for path, content := range map[string]string{params: text, modify: "", env: ""} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return err
		}
	}
	args := []string{}
	if j.wanted.Image != "" {
		args = []string{j.wanted.Image}
	}
	if _, err := os.Stat(l.esub()); err != nil {
		return fmt.Errorf("cannot find the mandatory esub: %w. Job not submitted", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.esub(), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LSB_SUB_ABORT_VALUE=" + strconv.Itoa(abort),
		"LSB_SUB_PARM_FILE=" + params, "LSB_SUB_MODIFY_FILE=" + modify, "LSB_SUB_MODIFY_ENVFILE=" + env}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Run()
	// Any other status is not looked at: the submission goes on.
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == abort {
		return fmt.Errorf("esub aborted the request, the job is not submitted: %s", said.String())
	}
	j.command = line
	if v, ok := assigned(modify)["LSB_SUB_COMMAND_LINE"]; ok {
		j.command = v
	}
	for k, v := range assigned(env) {
		j.env = append(j.env, k+"="+v)
	}
	return nil
}

// commandLine is what the user typed behind bsub. A script without arguments is given on bsub's input: LSF keeps it in
// a file beside the job's, and that is the command.
func (s *lsf) commandLine(l *Lab, j *job) (string, error) {
	if j.wanted.Script == "" {
		return farm.ShellWords(j.wanted.Argv...), nil
	}
	if len(j.wanted.Args) == 0 {
		path := l.jobFile(j) + ".shell"
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := os.Chown(filepath.Dir(path), nobody, nobody); err != nil {
			return "", err
		}
		return path, writeAs(path, j.wanted.Script, 0o700)
	}
	path := filepath.Join(j.wanted.Dir, "job"+strconv.Itoa(j.number)+".sh")
	return farm.ShellWords(append([]string{path}, j.wanted.Args...)...), writeAs(path, j.wanted.Script, 0o755)
}

func writeAs(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return err
	}
	return os.Chown(path, nobody, nobody)
}

func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text)
}

// assigned has a shell read assignments, as bsub reads them.
func assigned(path string) map[string]string {
	found := map[string]string{}
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		key, _, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		out, err := exec.Command("/bin/sh", "-c", `. "$1"; eval "printf %s \"\$$2\""`, "sh", path, key).Output()
		if err == nil {
			found[key] = string(out)
		}
	}
	return found
}

// jobFile is HOME/.lsbatch/TIME.JOB, where sbatchd writes what the shell runs.
func (l *Lab) jobFile(j *job) string {
	name := fmt.Sprintf("%d.%d", epoch, j.number)
	if j.element > 0 {
		name += "." + strconv.Itoa(j.element)
	}
	return filepath.Join(l.Home(), ".lsbatch", name)
}

// epoch stands for the time of submission in names of files.
const epoch = 1700000000

func (*lsf) may(*Lab, *job) bool { return true }

// start is sbatchd's: it writes the job's file (the shell does not die of the signals that its command gets:
// LSB_TRAPSIGS), and starts res, as root, which starts the shell as the user. The text around the command is that of
// lsb.sub.c and sbd.job.c of the published Lava, from which LSF descends.
func (s *lsf) start(l *Lab, j *job, _ int) (start, error) {
	if err := s.list(l); err != nil {
		return start{}, err
	}
	memory := int64(j.wanted.Memory) << 20
	var err error
	if j.groups, err = makeGroups(l.parent(), fmt.Sprintf("job.%d.%d.%d", j.number, 1000+j.element, epoch), memory,
		""); err != nil {
		return start{}, err
	}
	command, queue := j.command, metalQueue
	if !j.wanted.Metal {
		queue = mainQueue
		command = strings.ReplaceAll(s.starter, "%USRCMD", j.command)
	}
	file := l.jobFile(j)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return start{}, err
	}
	if err := os.Chown(filepath.Dir(file), nobody, nobody); err != nil {
		return start{}, err
	}
	text := "#! /bin/sh\n\n$LSB_TRAPSIGS\n$LSB_RCP1\n$LSB_RCP2\n$LSB_RCP3\n# LSBATCH: User input\n" + command +
		"\nExitStat=$?\nwait\n# LSBATCH: End user input\ntrue\nexit `expr $? \"|\" $ExitStat`\n"
	if err := writeAs(file, text, 0o700); err != nil {
		return start{}, err
	}
	in := "/dev/null"
	if j.wanted.Stdin != "" {
		in = l.path("spool/" + strconv.Itoa(j.number) + ".in")
		if err := writeAs(in, j.wanted.Stdin, 0o600); err != nil {
			return start{}, err
		}
	}
	env := append(append([]string{}, j.wanted.Env...), j.env...)
	env = append(env, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME="+l.Home(), "USER=nobody", "LOGNAME=nobody",
		"SHELL=/bin/sh", "LSB_JOBID="+strconv.Itoa(j.number), "LSB_JOBINDEX="+strconv.Itoa(j.element),
		"LSB_JOBNAME=job", "LSB_QUEUE="+queue, "LSB_HOSTS="+l.name, "LSB_MCPU_HOSTS="+l.name+" 1",
		"LSB_JOBFILENAME="+file, "LSB_CHKFILENAME="+file, "LS_SUBCWD="+j.wanted.Dir, "LSB_EXIT_REQUEUE=199",
		"LSB_TRAPSIGS=trap # 15 10 12 2 1", "LSF_ENVDIR=/etc/lsf/conf")
	// The shell ends by itself with the status of the command: exec in the starter makes it the command.
	return start{Program: "/bin/sh", Argv: []string{"/bin/sh", file}, Env: env, Dir: j.wanted.Dir, Stdin: in,
		Res: l.path("bin/res"), File: file}, nil
}

func (s *lsf) over(_ *Lab, j *job, status syscall.WaitStatus) (conform.Result, bool) {
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	reason := "exit code " + strconv.Itoa(code)
	if !j.wanted.Metal && code == 199 && j.runs <= 2 && !j.cancelled { // REQUEUE_EXIT_VALUES, MAX_JOB_REQUEUE
		return conform.Result{}, true
	}
	switch {
	case j.late:
		return conform.Result{State: conform.Timeout, Reason: "TERM_RUNLIMIT, " + reason}, false
	case j.cancelled:
		return conform.Result{State: conform.Cancelled, Reason: "TERM_OWNER, " + reason, Code: code}, false
	case !j.wanted.Metal && (code == 199 || code == 197):
		return conform.Result{State: conform.NotStarted, Reason: reason}, false
	case code != 0:
		return conform.Result{State: conform.Failed, Code: code, Reason: reason}, false
	}
	return conform.Result{State: conform.Done, Reason: reason}, false
}

// terminateInterval is JOB_TERMINATE_INTERVAL of lsb.params; 10 s by default.
const terminateInterval = 10 * time.Second

// cancel is bkill: INT, TERM and KILL. A script that traps TERM alone dies of INT first, on the host too: its user says
// bkill -s TERM.
func (*lsf) cancel(l *Lab, j *job) {
	if j.wanted.Notify {
		l.signal(j, syscall.SIGTERM)
		return
	}
	l.escalate(j, terminateInterval, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL)
}

// limit is -W: with -wa TERM the job is told, then USR2, and some time later INT, TERM, KILL (bsub -W, bsub -wa). Ten
// minutes are ten seconds here.
func (*lsf) limit(l *Lab, j *job) {
	l.mark(func() { j.late = true })
	if j.wanted.Notify {
		l.signal(j, syscall.SIGTERM)
		time.Sleep(5 * time.Second)
	}
	l.escalate(j, terminateInterval, syscall.SIGUSR2, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL)
}

func (s *lsf) damage(l *Lab, f conform.Fault) (func(), error) {
	mend := func() { s.install(l) }
	switch f {
	case conform.BrokenHook: // a site's own edit of the starter
		old := s.starter
		s.starter = strings.Replace(s.starter, "exec "+l.wrapper(), "exec "+l.path("hooks/esub.grange")+".none", 1)
		return func() { s.starter = old }, nil
	case conform.NoPlugin: // no esub on this submit host
		return mend, os.Remove(l.esub())
	}
	return nil, fmt.Errorf("%w: %s", conform.ErrNone, f)
}
