package live

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/trial"
)

// keptFile has the last trial of a host, in the agent's state directory.
const keptFile = "trial.json"

// ReadKept reads the last trial; fs.ErrNotExist: there was none.
func ReadKept(stateDir string) (k trial.Kept, err error) {
	text, err := os.ReadFile(filepath.Join(stateDir, keptFile))
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

// Keep writes a trial down.
func Keep(stateDir string, k trial.Kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(stateDir, keptFile), append(text, '\n'), 0o600)
}

// Lock keeps two trials apart: each would take back what the other has made. It ends with the process that holds it.
func Lock(stateDir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(stateDir, "trial.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &farm.Error{Kind: farm.Conflict, Code: trial.CodeTrial,
				Message: "another change is being tried on this host", Hint: "wait for its end, or interrupt it"}
		}
		return nil, err
	}
	return func() { f.Close() }, nil
}
