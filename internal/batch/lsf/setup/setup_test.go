package setup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuoting has a real shell run what LSF would make of command lines: the starter with %USRCMD replaced as it
// stands, by what esub wrote. All of the command reaches the wrapper as one word, and none of it runs on the host.
func TestQuoting(t *testing.T) {
	dir := t.TempDir()
	wrapper := filepath.Join(dir, "grange")
	// Stands for the wrapper: it writes down its last word.
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nfor last; do :; done\nprintf %s \"$last\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	starter := Setup{Grange: wrapper}.Starter()
	for _, line := range []string{
		"./analyse", "./analyse a b", "echo a; touch host", "a | touch host", "a && touch host", "a & touch host",
		"echo 'a | touch host'", "it's `touch host` $(touch host)",
		`awk '{print $1}' "a b" > out`, "a\ntouch host", `back\slash \" \'`, "$HOME ~ * ?", "# comment",
	} {
		parm := "LSB_SUB_QUEUE=\"vm\"\nLSB_SUB_COMMAND_LINE=" + enquote(strings.ReplaceAll(line, "\n", " ")) + "\n"
		s, err := Esub(strings.NewReader(parm), nil, []string{"vm"})
		if err != nil || len(s.Modify) != 1 {
			t.Fatalf("%q: %+v, %v", line, s, err)
		}
		written := unquote(strings.TrimPrefix(s.Modify[0], "LSB_SUB_COMMAND_LINE="))
		cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(starter, "%USRCMD", written))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if want := strings.ReplaceAll(line, "\n", " "); err != nil || string(out) != want {
			t.Errorf("%q reaches the wrapper as %q, %v", want, out, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "host")); err == nil {
			t.Fatalf("%q ran on the host", line)
		}
	}
}

func TestEsub(t *testing.T) {
	const parm = "LSB_SUB_QUEUE=\"vm\"\nLSB_SUB_COMMAND_LINE=\"true\"\nOTHER=1\n"
	s, err := Esub(strings.NewReader(parm), []string{"sl9:2026"}, []string{"vm"})
	if err != nil || len(s.Env) != 1 || s.Env[0] != ImageVariable+`="sl9:2026"` {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := Esub(strings.NewReader(parm), nil, []string{"other"}); err != nil ||
		len(s.Modify)+len(s.Env) > 0 {
		t.Errorf("another queue's job is changed: %+v, %v", s, err)
	}
	for _, args := range [][]string{{"--bind"}, {"a", "b"}, {"$(id)"}, {""}} {
		if _, err := Esub(strings.NewReader(parm), args, nil); err == nil {
			t.Errorf("%q is an image", args)
		}
	}
}

func TestFiles(t *testing.T) {
	files := Setup{Grange: "/usr/bin/grange", Socket: "/run/g.sock", Queues: []string{"vm", "long"},
		Requeues: 2}.Files()
	for name, want := range map[string]string{
		"esub.grange": "#!/bin/sh\n# grange: the command line of a job becomes one word, so that all of it runs in " +
			"the VM.\n" + "/usr/bin/grange lsf esub --queues vm,long -- \"$@\" || exit " +
			"\"${LSB_SUB_ABORT_VALUE:-97}\"\n",
		"elim.grange": "#!/bin/sh\n# grange: free slots for VMs and the images of this host, for -R " +
			"\"select[...]\".\nexec /usr/bin/grange lsf elim --socket /run/g.sock\n",
		"lsb.queues": "# in the queue vm, between Begin Queue and End Queue:\n" +
			"JOB_STARTER         = exec /usr/bin/grange exec --batch lsf --socket /run/g.sock " +
			"${GRANGE_LSF_IMAGE:+--image \"$GRANGE_LSF_IMAGE\"} -- '%USRCMD'\n" +
			"REQUEUE_EXIT_VALUES = 199\nMAX_JOB_REQUEUE     = 2\nRERUNNABLE          = no\n",
	} {
		if got := files[name]; !strings.HasPrefix(got, want) {
			t.Errorf("%s is\n%s\nnot\n%s", name, got, want)
		}
	}
}

func TestElim(t *testing.T) {
	if got := (Load{3, []string{"sl9:a", "micro",
		strings.Repeat("x", 40)}}).Report(); got != "3 grange_slots 3 grange_micro 1 grange_sl9_a 1\n" {
		t.Errorf("%q", got)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		var b strings.Builder
		looks := 0
		err := Elim(ctx, &b, 10*time.Second, func(context.Context) (Load, error) {
			looks++
			if looks == 2 {
				return Load{Slots: 9}, errors.New("no agent")
			}
			return Load{Slots: looks}, nil
		})
		if want := "1 grange_slots 1\n1 grange_slots 0\n1 grange_slots 3\n"; err != nil || b.String() != want {
			t.Errorf("%q, %v", b.String(), err)
		}
	})
}
