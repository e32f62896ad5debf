# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
# shellcheck shell=bash
#
# Completes words of actmem and actmem-bench in bash. Subcommands, options and the kinds of
# their values are read from --help, which tells those that this version has. None of them
# has a character that a shell knows.
# shellcheck disable=SC2206,SC2207

# The kinds of values, as --help names them: words and places of which one is wanted,
# a,b for several words with commas between, COLUMNS for such that a section of it lists.
_actmem_value()
{
	local kind=$1 word=$2 before='' each
	local -a words=() left=()

	for each in ${kind//|/ }; do
		case $each in
		COLUMNS) words+=("${columns[@]}"); kind=, ;;
		[a-z0-9]*,*) words+=(${each//,/ }) ;;
		[a-z0-9]*) words+=("$each") ;;
		USER) mapfile -t COMPREPLY < <(compgen -u -- "$word") ;;
		PID) words+=($(cd /proc && echo [0-9]*)) ;;
		DIR) compopt -o dirnames ;;
		FILE* | PATH) compopt -o default ;;
		esac
	done
	if [[ $kind == *,* ]]; then
		[[ $word == *,* ]] && before=${word%,*},
		for each in "${words[@]}"; do
			[[ ,$before == *,$each,* ]] || left+=("$before$each")
		done
		words=("${left[@]}")
		compopt -o nospace
	fi
	COMPREPLY+=($(compgen -W "${words[*]}" -- "$word"))
}

# The option that a word of letters or an option's name, cut short or not, has the next
# word for: in $taker, empty if it wants none.
_actmem_taker()
{
	local word=$1 name letter

	taker=
	if [[ $word == --* ]]; then
		for name in "${!kinds[@]}"; do
			[[ $name == "$word"* ]] && taker=$name
			[[ $name == "$word" ]] && break
		done
		return
	fi
	for ((letter = 1; letter < ${#word}; letter++)); do
		name=-${word:letter:1}
		[[ ${kinds[$name]} ]] || continue
		((letter + 1 == ${#word})) && taker=$name
		return
	done
}

_actmem_program()
{
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((COMP_CWORD == $1)); then
		mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
	else
		compopt -o default
	fi
}

_actmem()
{
	local command=${COMP_WORDS[0]/#\~/$HOME} subcommand=${COMP_WORDS[1]} word
	local option='^  (-([A-Za-z]), |    )?(--[a-z-]+)(\[?[ =]([^ ]+))?( |$)'
	local IFS=$' \t\n' line usage='' section='' taker last i
	local -A kinds=()
	local -a columns=() subcommands=()

	word=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	((COMP_CWORD == 1)) && subcommand=
	while IFS= read -r line; do
		if [[ $line =~ $option ]]; then
			kinds[${BASH_REMATCH[3]}]=${BASH_REMATCH[4]}
			[[ ${BASH_REMATCH[2]} ]] && kinds[-${BASH_REMATCH[2]}]=${BASH_REMATCH[4]}
		elif [[ $line == Usage:* ]]; then
			usage=$line
		elif [[ $line =~ ^([A-Z]+):$ ]]; then
			section=${BASH_REMATCH[1]}
		elif [[ $line =~ ^\ \ ([a-z]+)(\ |$) ]]; then
			[[ $section == COLUMNS ]] && columns+=("${BASH_REMATCH[1]}")
			subcommands+=("${BASH_REMATCH[1]}")
		fi
	done < <("$command" ${subcommand:+"$subcommand"} --help 2>/dev/null)

	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W "${subcommands[*]} --help --version" -- "$word"))
		return
	fi
	# Bash has made words of their own of = and : and what is behind them.
	for ((i = 2; i < COMP_CWORD; i = last + 1)); do
		last=$i
		if [[ ${COMP_WORDS[i]} == -- || ${COMP_WORDS[i]} != -* ]]; then
			[[ $usage == *PROGRAM* ]] || continue
			[[ ${COMP_WORDS[i]} == -- ]] && ((i++))
			_actmem_program "$i"
			return
		fi
		_actmem_taker "${COMP_WORDS[i]}"
		if [[ $taker == --* && ${COMP_WORDS[i + 1]} == "=" ]]; then
			((last++))
		elif [[ ! $taker || ! ${kinds[$taker]} || ${kinds[$taker]} == "["* ]]; then
			continue
		fi
		((last++))
		while [[ ${COMP_WORDS[last + 1]} == :* ]]; do
			((last += 2))
		done
		((last < COMP_CWORD)) && continue
		[[ $word == [=:]* ]] && word=
		_actmem_value "${kinds[$taker]#*[= ]}" "$word"
		return
	done
	if [[ $word == -* ]]; then
		COMPREPLY=($(compgen -W "${!kinds[*]}" -- "$word"))
	elif [[ $usage == *PROGRAM* ]]; then
		_actmem_program "$COMP_CWORD"
	elif [[ $usage == *FILE* ]]; then
		compopt -o default
	fi
}

complete -F _actmem actmem actmem-bench
