package runner

import (
	"os"

	"golang.org/x/term"

	"github.com/grange-project/grange/api"
)

// terminalOf returns the terminal in the VM where the job is to have ours; nil: it has none. So has a job that somebody
// sits before, as with srun --pty and qsub -I, as it would on the host.
func terminalOf(o Options) (*api.Size, error) {
	if !o.Terminal && (o.Batch == nil || !o.onTerminal()) {
		return nil, nil
	}
	rows, cols, err := terminalSize(o.Stdin)
	if err != nil {
		return nil, usage("leave --tty out", "--tty needs a terminal here")
	}
	return &api.Size{Rows: rows, Cols: cols}, nil
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

// rawTerminal hands our terminal to the job.
func rawTerminal(f *os.File) (restore func()) {
	stdin := int(f.Fd())
	old, err := term.MakeRaw(stdin)
	if err != nil {
		return func() {}
	}
	return func() { term.Restore(stdin, old) }
}
