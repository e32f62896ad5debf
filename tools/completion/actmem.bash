# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
# shellcheck shell=bash
#
# Completes the command lines of actmem and actmem-bench in bash. The subcommands, the options and
# the kinds of their values are read from --help, which lists those of the installed version. They
# contain no character that is special in a shell, so the code may expand them without quotes.
# shellcheck disable=SC2206,SC2207

# Completes a value of the kind that --help shows: alternatives such as a|DIR; a list such as a,b,
# whose words are separated by commas; or COLUMNS, a list of the names in a section of --help.
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

# Sets taker to the option in $1 whose value is the next word, or to "" if there is none. $1 is
# either short options, such as -Jn, or a long option, which may be abbreviated. The caller checks
# whether a long option has a value.
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
	# Bash splits words at = and : (COMP_WORDBREAKS), so a value can consist of several words.
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
