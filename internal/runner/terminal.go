package runner

import (
	"os"

	"golang.org/x/term"

	"github.com/grange-project/grange/api"
)

// giveTerminal asks for a terminal in the VM where the job is to have ours. So has a job that somebody sits before, as
// with srun --pty and qsub -I, as it would on the host.
func (j *Job) giveTerminal() error {
	if !j.opts.Terminal && (j.opts.Batch == nil || !j.opts.onTerminal()) {
		return nil
	}
	rows, cols, err := terminalSize(j.opts.Stdin)
	if err != nil {
		return usage("leave --tty out", "--tty needs a terminal here")
	}
	j.request.Terminal = &api.Size{Rows: rows, Cols: cols}
	return nil
}

// onTerminal reports whether the job's files are all a terminal.
func (o Options) onTerminal() bool {
	for _, f := range []*os.File{o.Stdin, o.Stdout, o.Stderr} {
		if !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	return true
}

func terminalSize(f *os.File) (rows, cols uint16, err error) {
	w, h, err := term.GetSize(int(f.Fd()))
	return uint16(h), uint16(w), err
}

// rawTerminal hands our terminal to the job, where it asked for one.
func (j *Job) rawTerminal() (restore func()) {
	if j.request.Terminal == nil {
		return func() {}
	}
	stdin := int(j.opts.Stdin.Fd())
	old, err := term.MakeRaw(stdin)
	if err != nil {
		return func() {}
	}
	return func() { term.Restore(stdin, old) }
}
