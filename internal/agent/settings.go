package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// settingsFile keeps what the server said last, for a host that starts while the server is away.
const settingsFile = "server-settings.json"

// take takes over what the server keeps of all agents' configuration. What runs is not touched; the next job
// and the next start of a VM go by it. Settings that make no sense here are refused whole, and the old ones stay.
func (a settings) take(s fleet.Settings) {
	a.mu.Lock()
	same := reflect.DeepEqual(a.central, s)
	a.mu.Unlock()
	if same {
		return
	}
	if err := wire.ParseSettings(s).Validate(); err != nil {
		a.log.Error("settings of the server not taken over", "error", err)
		return
	}
	a.mu.Lock()
	a.central = s
	a.mu.Unlock()
	a.log.Info("settings of the server taken over")
	if err := a.keep(s); err != nil {
		a.log.Error("settings of the server not kept for the next start", "error", err)
	}
}

func (a settings) keep(s fleet.Settings) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(a.config().StateDir, settingsFile), text, 0o600)
}

// load reads what the server said before this agent started. A broken file is none: the server says it again.
func (a settings) load() {
	text, err := os.ReadFile(filepath.Join(a.config().StateDir, settingsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s fleet.Settings
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = wire.ParseSettings(s).Validate()
	}
	if err != nil {
		a.log.Error("what the server said of this agent's configuration cannot be read", "error", err)
		return
	}
	a.mu.Lock()
	a.central = s
	a.mu.Unlock()
}

// LinkIs sets what is wrong with its link to the server, for those who ask on the host; nil: nothing.
func (a *Agent) LinkIs(wrong error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noLink, a.linked = wrong, true
}

// linkWarning returns what is wrong with the link, and what to try; "": nothing is.
func (a *Agent) linkWarning() string {
	a.mu.Lock()
	wrong := a.noLink
	a.mu.Unlock()
	if wrong == nil {
		return ""
	}
	text := "no link to the server: " + wrong.Error()
	if own, ok := errors.AsType[*farm.Error](wrong); ok {
		text = fmt.Sprintf("%s; %s [%s]", text, own.Hint, own.Code)
	}
	return text
}
