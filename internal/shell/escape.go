package shell

// Escapes are what a user types to the terminal instead of to the command: at the start of a line, the escape character
// and one more, as ssh has it.
type escapes struct {
	char    byte // 0: there are none
	inLine  bool // something but the end of a line was typed last
	pending bool // the escape character was typed, and what follows decides
}

// action is what a user wants of the terminal.
type action int

const (
	nothing action = iota
	detach
	end
	help
)

// take splits what was typed: bytes for the command, and an action. What is behind an action is dropped: its session
// may be another one's by then.
func (e *escapes) take(typed []byte) (data []byte, do action) {
	for _, b := range typed {
		switch {
		case e.pending:
			e.pending = false
			switch b {
			case 'd':
				return data, detach
			case '.':
				return data, end
			case '?':
				e.inLine = false
				return data, help
			case e.char:
				data = append(data, b)
			default:
				data = append(data, e.char, b)
			}
			e.inLine = b != '\r' && b != '\n'
		case e.char != 0 && b == e.char && !e.inLine:
			e.pending = true
		default:
			data = append(data, b)
			e.inLine = b != '\r' && b != '\n'
		}
	}
	return data, nothing
}
