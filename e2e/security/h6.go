package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

func (s *site) grange() string { return filepath.Join(s.programs, "grange") }

// abort is what LSF wants of an esub that refuses a submission.
const abort = 97

// lsfBesideTheJob submits to a VM queue, as LSF's bsub, bmod and brestart would: the esub of an installation, in the
// environment that they make.
func lsfBesideTheJob(ctx context.Context, s *site) error {
	dir := s.path("lsf")
	if out, err := exec.CommandContext(ctx, s.grange(), "lsf", "install", "--dir", dir, "--grange", s.grange(),
		"--queue", "vm").CombinedOutput(); err != nil {
		return fmt.Errorf("lsf install: %w\n%s", err, out)
	}
	user, err := s.account(40)
	if err != nil {
		return err
	}
	submit := func(lines ...string) (status int, said string) {
		params := filepath.Join(user.home, "params")
		if err := os.WriteFile(params, []byte(strings.Join(lines, "\n")+"\nLSB_SUB_COMMAND_LINE=\"true\"\n"),
			0o644); err != nil {
			return -1, err.Error()
		}
		cmd := user.command(ctx, filepath.Join(dir, "esub.grange"))
		cmd.Env = append(cmd.Env, "LSB_SUB_PARM_FILE="+params, "LSB_SUB_MODIFY_FILE="+params+".modify",
			"LSB_SUB_MODIFY_ENVFILE="+params+".env", fmt.Sprintf("LSB_SUB_ABORT_VALUE=%d", abort))
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if status, said := submit(`LSB_SUB_QUEUE="vm"`); status != 0 {
		return fmt.Errorf("a plain job is refused: status %d: %s", status, said)
	}
	var open []string
	for _, way := range []struct {
		name  string
		lines []string
	}{
		{"bsub -E", []string{`LSB_SUB_QUEUE="vm"`, `LSB_SUB_PRE_EXEC="touch /tmp/on-the-host"`}},
		{"bsub -Ep", []string{`LSB_SUB_QUEUE="vm"`, `LSB_SUB3_POST_EXEC="touch /tmp/on-the-host"`}},
		{"bsub -L", []string{`LSB_SUB_QUEUE="vm"`, `LSB_SUB_LOGIN_SHELL="/home/u/shell"`}},
		{"bsub -k", []string{`LSB_SUB_QUEUE="vm"`, `LSB_SUB_CHKPNT_DIR="/home/u method=mine"`}},
		{"bsub -rnc", []string{`LSB_SUB_QUEUE="vm"`, `LSB_SUB3_RESIZE_NOTIFY_CMD="/home/u/x"`}},
		{"brestart", []string{`LSB_SUB_QUEUE="vm"`, "LSB_SUB_RESTART=Y"}},
		{"bmod -E", []string{"LSB_SUB_MODIFY=Y", `LSB_SUB_PRE_EXEC="touch /tmp/on-the-host"`}},
		{"one of two queues", []string{`LSB_SUB_QUEUE="metal vm"`, `LSB_SUB_PRE_EXEC="touch /tmp/on-the-host"`}},
	} {
		if status, _ := submit(way.lines...); status != abort {
			open = append(open, way.name)
		}
	}
	if len(open) > 0 {
		return breach("the esub lets through %s", strings.Join(open, ", "))
	}
	return nil
}

// openHosts: hosts as the batch systems' own installations leave them.
func openHosts(ctx context.Context, s *site) error {
	slurm, pbs, lsf := s.path("slurm"), s.path("pbs"), s.path("lsf-site")
	recorded := filepath.Join(lab.Source(), "internal/batch/lsf/setup/testdata/site")
	if err := os.CopyFS(lsf, os.DirFS(recorded)); err != nil {
		return err
	}
	conf := filepath.Join(lsf, "opt/lsf/conf/lsf.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		conf:                                   strings.ReplaceAll(string(text), "LSF_DISABLE_LSRUN=Y\n", ""),
		filepath.Join(slurm, "slurm.conf"):     "ClusterName=a\n",
		filepath.Join(slurm, "plugstack.conf"): "required /usr/local/lib/grange/grange_spank.so default=micro\n",
		filepath.Join(pbs, "pbs.conf"):         "PBS_HOME=" + pbs + "\nPBS_START_MOM=1\nPBS_SCP=/usr/bin/scp\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	var open []string
	for _, look := range []struct {
		way, id string
		args    []string
	}{
		{"sbatch --get-user-env", "user-env", []string{"slurm", "check", "--conf", filepath.Join(slurm, "slurm.conf")}},
		{"~/.ssh/config of a PBS job's user", "staging",
			[]string{"pbs", "check", "--conf", filepath.Join(pbs, "pbs.conf")}},
		{"lsrun", "lsrun", []string{"lsf", "check", "--root", lsf, "--conf", "/opt/lsf/conf/lsf.conf"}},
	} {
		broken, err := s.broken(ctx, look.args)
		if err != nil {
			return err
		}
		if !slices.Contains(broken, look.id) {
			open = append(open, look.way)
		}
	}
	if len(open) > 0 {
		return breach("check does not say broken where %s runs on the host", strings.Join(open, ", "))
	}
	return nil
}

// broken are what a check calls broken; its exit status has to say so, too.
func (s *site) broken(ctx context.Context, args []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, s.grange(), append([]string{"--json"}, args...)...)
	out, err := cmd.Output()
	var findings []struct{ ID, Level string }
	if bad := json.Unmarshal(out, &findings); bad != nil {
		return nil, fmt.Errorf("%q: %w, %w", args, err, bad)
	}
	var broken []string
	for _, f := range findings {
		if f.Level == "broken" {
			broken = append(broken, f.ID)
		}
	}
	if len(broken) > 0 && cmd.ProcessState.ExitCode() != 1 {
		return nil, fmt.Errorf("%q finds %q and ends with %v", args, broken, cmd.ProcessState)
	}
	return broken, nil
}
