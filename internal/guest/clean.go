package guest

import (
	"encoding/json"

	"github.com/grange-project/grange/internal/farm"
)

// maxMessage bounds what a guest says in words, in bytes.
const maxMessage = 2048

// UnmarshalJSON reads a state of a guest, which may be hostile, and whose words reach terminals of others.
func (s *State) UnmarshalJSON(text []byte) error {
	type plain State
	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		return err
	}
	s.Job, s.Phase = farm.Clean(s.Job, 64), Phase(farm.Clean(string(s.Phase), 32))
	s.Message = farm.CleanLines(s.Message, maxMessage)
	return nil
}

// UnmarshalJSON does the same for what a guest says to `grange exec`.
func (m *GuestMessage) UnmarshalJSON(text []byte) error {
	type plain GuestMessage
	if err := json.Unmarshal(text, (*plain)(m)); err != nil {
		return err
	}
	m.Failed = farm.CleanLines(m.Failed, maxMessage)
	return nil
}
