package apply

import (
	"encoding/json"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// settingMaxima is the name under which the store keeps the site's maxima.
const settingMaxima = "maxima"

// Maxima are what the site lets any VM have.
func Maxima(t *store.Tx) (m farm.Maxima, err error) {
	text, err := t.Setting(settingMaxima)
	switch {
	case action.Missing(err):
		return m, nil
	case err != nil:
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read the site's maxima: %w", err)
	}
	return m, nil
}

// PutMaxima keeps them.
func PutMaxima(t *store.Tx, m farm.Maxima) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return t.PutSetting(settingMaxima, text)
}
